"""The state of the cluster as the admin API reads it."""
