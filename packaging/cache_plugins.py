"""Caches the lists of Twisted and kreplica plugins in the environment: ``python packaging/cache_plugins.py``.

Brokers cannot write to an installed environment, and without the lists they would read every plugin module at each
start.
"""

from __future__ import annotations

from twisted.plugin import IPlugin, getPlugins

import kreplica.plugins
from twisted import plugins

for package in (plugins, kreplica.plugins):
    list(getPlugins(IPlugin, package))
