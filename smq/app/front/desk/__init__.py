"""What the console asks of the broker, through the SDK, as any client would."""
