"""Event handlers: what the controller does when brokers, topics, partitions or replicas change."""
