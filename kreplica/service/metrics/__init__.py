"""Metrics of a broker in Prometheus form."""
