"""Who a peer is, and what it may do: identities, credentials, listeners. Decisions; no IO."""
