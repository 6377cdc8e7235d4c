"""The Spark source: reading topics from brokers or from segment files."""
