"""Produce and Fetch requests."""
