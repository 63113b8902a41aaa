"""Clients' sockets: what is received, what is sent, what each may hold."""
