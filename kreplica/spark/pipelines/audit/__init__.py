"""Audit: comparison of all replicas of a cluster below the high watermark."""
