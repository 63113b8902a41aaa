"""What waits: fetches for records, others for an answer of another process."""
