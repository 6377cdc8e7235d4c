"""Producer state of a log: sequence numbers, epochs and transactions."""
