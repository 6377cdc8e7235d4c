"""Handlers of the cluster, configuration and controller APIs."""
