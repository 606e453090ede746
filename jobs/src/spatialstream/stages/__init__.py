"""The stages INGEST, ROUTE, WORK and MERGE as pure functions over batches and state files."""
