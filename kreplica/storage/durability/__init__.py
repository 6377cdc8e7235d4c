"""Group commit: syncing logs to the device off the reactor thread."""
