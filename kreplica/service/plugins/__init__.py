"""Finds and creates the plugins of a broker and handles their failures; start at ``plugin_creation.Plugins``."""

from kreplica.service.plugins.plugin_creation import Plugins

__all__ = ["Plugins"]
