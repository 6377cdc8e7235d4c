"""The server process: options, start, signals, logging, systemd."""
