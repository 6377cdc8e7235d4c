"""The Spark source: reads topics from brokers or from segment files."""
