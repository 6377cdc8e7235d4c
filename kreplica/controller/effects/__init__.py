"""Effects of decisions: writes to ZooKeeper and commands to brokers."""
