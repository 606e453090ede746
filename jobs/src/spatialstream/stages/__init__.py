"""INGEST, ROUTE, WORK and MERGE: what computes, as pure functions over batches and state files."""
