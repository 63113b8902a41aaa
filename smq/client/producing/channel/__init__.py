"""The way to a broker: Produce requests go out and their responses come back."""
