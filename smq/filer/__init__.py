"""Where files live: sealed segments and payloads."""
