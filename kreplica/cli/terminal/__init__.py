"""Terminal input and output: parameter types, tables, lazy command groups."""
