"""What the coordinator decides: topics, groups, offsets, producer ids."""
