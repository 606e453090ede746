"""Storage and adoption of a stream's routing versions: in ZooKeeper; in memory for simulation."""
