"""Connections on sockets: reading frames, sending responses, bounds on both."""
