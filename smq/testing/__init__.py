"""The test kit: fakes, brokers for a test, the real Apache Kafka as an oracle."""
