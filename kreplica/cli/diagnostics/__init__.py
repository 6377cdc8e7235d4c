"""Commands for log files, controller journals, simulation and verification."""
