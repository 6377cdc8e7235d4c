"""The controller's events and the queue that handles them one at a time."""
