"""HTTP client of the admin API for commands."""
