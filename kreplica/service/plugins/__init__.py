"""Finds, creates and contains the plugins of a broker; ``Plugins`` in ``chosen`` is the entry point."""

from kreplica.service.plugins.chosen import Plugins

__all__ = ["Plugins"]
