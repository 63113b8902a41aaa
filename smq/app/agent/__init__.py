"""The agent's process: SeaweedMQ's gRPC services, on the SDK's local door."""
