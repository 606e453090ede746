"""Where a stream's routing versions are kept, and how they come into force: in ZooKeeper; in memory for simulation."""
