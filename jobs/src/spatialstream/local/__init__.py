"""Worker indexes of one slot, object segments and continuous queries: without Spark, and without I/O of their own."""
