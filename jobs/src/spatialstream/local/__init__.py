"""Indexes of one worker slot, over object segments and continuous queries. They use no Spark and do no I/O."""
