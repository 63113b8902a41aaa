"""Compiles every kernel, or loads it from the cache, before processes are forked."""
