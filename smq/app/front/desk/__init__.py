"""The console's access to the broker: the SDK, as for any other client."""
