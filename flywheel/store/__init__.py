"""Data at rest: the home folder, content digests, Parquet segments read by DuckDB, and the registry."""
