"""SeaweedMQ's gRPC doors: what they decide, without gRPC, sockets or clocks."""
