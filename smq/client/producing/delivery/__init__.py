"""The records that the user has sent and the result of each: parcels, futures, failures."""
