"""The coordinator's process. smq.coordinator decides."""
