"""Groups of the whole cluster, requested from their coordinators by Kafka's protocol."""
