"""Everything that uses pyspark: sessions, tasks and jobs, and DataFrames as input and output."""
