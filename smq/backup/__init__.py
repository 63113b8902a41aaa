"""Snapshots of a data directory, taken while it is served, and restoring them."""
