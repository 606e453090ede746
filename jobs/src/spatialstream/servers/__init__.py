"""Real Kafka and ZooKeeper servers for developers and tests, on this machine alone and without containers."""
