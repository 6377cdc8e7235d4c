"""Winning and losing the controller election: the term of an elected controller and its start."""
