"""The SQL store: topics, groups, offsets, the manifest of sealed segments."""
