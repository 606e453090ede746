"""Bytes to batches and back: a fast path for blocks of records, and the reference parser for unusual records."""
