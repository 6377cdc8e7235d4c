"""Opening logs after a clean stop, a kill or a power loss."""
