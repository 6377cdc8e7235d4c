"""Assembly of a broker's admin API."""
