"""The consumer: where records come from, what is lent of them, whose turn it is."""
