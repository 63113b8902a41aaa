"""Connections to a broker that asks who you are: TLS, SASL, and the settings of both."""
