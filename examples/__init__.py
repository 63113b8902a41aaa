"""Programs that use SMQ as its users do; not part of the wheel."""
