"""Compiled loops over bytes; each has a plain twin in reference.py."""
