"""Terminal input and output: parameter types, tables, progress bar, command groups, and the reactor."""
