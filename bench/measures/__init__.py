"""Measurements that are taken alike of SMQ and of Apache Kafka."""
