"""The process that serves HTTP. smq.front answers."""
