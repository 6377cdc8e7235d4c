"""Finds and creates a broker's plugins, and handles their failures; the entry point is ``plugin_creation.Plugins``."""

from kreplica.service.plugins.plugin_creation import Plugins

__all__ = ["Plugins"]
