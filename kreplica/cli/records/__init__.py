"""Commands that produce and consume records, and their shared parts."""
