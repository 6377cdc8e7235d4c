"""Everything that is administered by Kafka's protocol."""
