"""The controller's view of the cluster, with the state machines of partitions and replicas."""
