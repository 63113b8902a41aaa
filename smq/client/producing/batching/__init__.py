"""Which batch is sent when, with which sequence, and what its response means. No IO, no clock."""
