"""HTTP layer of the admin API: routing, validation, problems, limits and access."""
