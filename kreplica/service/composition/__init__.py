"""The composition root: builds a broker from its parts, starts it and stops it."""
