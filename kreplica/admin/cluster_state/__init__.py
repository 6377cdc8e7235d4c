"""Readers of the cluster's state for the admin API."""
