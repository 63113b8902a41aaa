"""The broker's counters in Prometheus's format."""
