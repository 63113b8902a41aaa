"""A small Kafka client of our own, for the command line."""
