"""The coordinator's decisions: topics, groups, offsets, producer ids."""
