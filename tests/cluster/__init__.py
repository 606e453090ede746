"""Tests with real servers: ZooKeeper, a Kafka broker, and both jobs as processes of their own (``make test-
cluster``)."""
