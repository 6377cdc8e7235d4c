"""Groups of the whole cluster, requested from their coordinators over Kafka's protocol."""
