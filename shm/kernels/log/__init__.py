"""A log's memory: append, index, visibility, producers, recovery, sync."""
