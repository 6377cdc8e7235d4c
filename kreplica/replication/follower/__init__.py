"""The follower of a partition.

* ``follower_state``: the role; ``truncation``: the pure rules for truncating to the leader's log
* ``fetchers``, ``fetch_requests``: fetching from the leaders
"""
