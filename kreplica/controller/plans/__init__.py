"""Execution of plans: long-running reassignments in bounded steps."""
