"""The way into a broker of this host: its shared memory."""
