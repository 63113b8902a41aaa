"""A program that reads a log's ring by itself."""
