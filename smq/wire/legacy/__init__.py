"""What clients from before Kafka 0.11 speak: message formats 0 and 1, and versions of APIs."""
