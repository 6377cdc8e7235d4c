"""Log directories: locks, identities, checkpoints, creation and deletion of logs."""
