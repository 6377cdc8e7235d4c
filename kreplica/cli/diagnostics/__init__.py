"""Commands for log files, controller journals, simulations and verification."""
