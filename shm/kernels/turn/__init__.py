"""Whole turns of a shard's loop, system calls included."""
