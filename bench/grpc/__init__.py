"""SeaweedMQ's services, as SMQ serves them, beside what they can be compared with."""
