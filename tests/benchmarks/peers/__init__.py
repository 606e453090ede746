"""Other systems that answer ranked queries, beside this one: ``make bench-peers``.

- :mod:`.workload`: objects and queries, and how this project answers them;
- :mod:`.lucene`, ``LuceneBest.java``: Lucene 9.11, in a JVM of its own;
- :mod:`.postgis`: PostGIS, in a database cluster of its own.
"""
