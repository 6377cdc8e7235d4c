"""Requests to other brokers' admin APIs and to partition leaders."""
