"""The protocol of clients from before Kafka 0.11: message formats 0 and 1, and old API versions."""
