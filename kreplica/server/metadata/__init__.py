"""The broker's metadata cache and the Metadata API."""
