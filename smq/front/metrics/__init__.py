"""What the broker counts, as Prometheus reads it."""
