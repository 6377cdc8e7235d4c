"""The follower of a partition: fetching from the leader and truncation."""
