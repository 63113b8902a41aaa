"""Kafka's messages: codecs, headers, record batches. No IO."""
