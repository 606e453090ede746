"""Worker indexes: object segments and continuous-query indexes of one slot, without Spark and without I/O of their own."""
