"""Profiles: named clusters, their addresses and credentials, in the user's configuration directory."""
