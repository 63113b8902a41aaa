"""A topic as a lake table over its own sealed files: no row is copied.

    manifest ──lines──▶ plan ◀──files── the table as its catalog or log has it
                          │
                          └─▶ at most three commits: rearranged, changed, added

plan       the differences between manifest and table. No IO
table      what Iceberg and Delta have in common, as a port
iceberg    pyiceberg: a catalog, snapshots, manifests
delta      deltalake: the log in the topic's directory
footers    the footers of Parquet files, for statistics
publish    the job: read both sides, commit the difference, record how far the table is
state      that record, a file in the data directory, for sweep, status, metrics and doctor

The manifest is the truth, and the table follows it. No state survives between jobs, so a kill at
any step costs a repetition and no more.
"""
