"""Bytes to batches and back: the fast path for blocks of records, and the reference parser for what is not plain."""
