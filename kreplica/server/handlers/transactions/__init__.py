"""Handlers of the transaction and producer ID APIs."""
