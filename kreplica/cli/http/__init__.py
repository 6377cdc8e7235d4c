"""Admin API client of the commands."""
