"""Kafka's protocol, asked and answered one by one: a blocking client."""
