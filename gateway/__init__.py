"""Kafka's door: connections, requests, answers."""
