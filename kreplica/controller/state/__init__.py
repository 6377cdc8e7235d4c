"""The controller's in-memory state of the cluster."""
