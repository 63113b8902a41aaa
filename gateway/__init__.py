"""Kafka's door: from a request's bytes to its answer's, without IO."""
