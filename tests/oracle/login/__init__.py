"""SASL's corners: what is answered before, at and after a login, by Apache Kafka and by us."""
