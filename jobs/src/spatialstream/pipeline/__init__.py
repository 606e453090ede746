"""The Spark pipeline: ROUTE, WORK and MERGE as functions from DataFrame to DataFrame, and the embedded run."""
