"""Turns that a kernel takes, and what it leaves to the loop."""
