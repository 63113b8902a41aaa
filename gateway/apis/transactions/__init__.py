"""The APIs of transactions. smq.coordinator.transactions decides."""
