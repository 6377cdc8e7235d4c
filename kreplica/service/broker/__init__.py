"""Assembly of one broker from its parts."""
