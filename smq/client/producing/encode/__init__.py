"""Records to bytes: the rows that the user gives become columns, columns become Kafka batches."""
