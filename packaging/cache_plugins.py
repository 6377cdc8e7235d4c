"""Caches the lists of Twisted's and kreplica's plugins in the environment: ``python packaging/cache_plugins.py``.

Brokers cannot write to an installed environment, and would read every plugin module at each start without the lists.
"""

from __future__ import annotations

from twisted.plugin import IPlugin, getPlugins

import kreplica.plugins
from twisted import plugins

for package in (plugins, kreplica.plugins):
    list(getPlugins(IPlugin, package))
