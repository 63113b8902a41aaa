"""SMQ: a message queue for one host that speaks Kafka's wire protocol."""
