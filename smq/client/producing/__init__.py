"""The producer: what it is given, what it sends when, and over what."""
