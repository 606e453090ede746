"""Spark's part: sessions, tasks and jobs, and DataFrames as input and output. Nothing else imports pyspark."""
