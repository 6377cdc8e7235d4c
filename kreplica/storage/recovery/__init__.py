"""Opens logs after a clean shutdown, a kill or a power loss."""
