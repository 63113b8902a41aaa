"""The coordinator's process. The decisions are in smq.coordinator."""
