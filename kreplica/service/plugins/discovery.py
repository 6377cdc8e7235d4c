"""Finds plugins by name."""

from __future__ import annotations

from typing import Any

from twisted.plugin import getPlugins
from twisted.python.modules import getModule
from zope.interface.interface import InterfaceClass

import kreplica.plugins
from kreplica.errors import SettingsError
from kreplica.interfaces import IPluginMaker


def find(setting: str, name: str, provides: InterfaceClass) -> IPluginMaker:
    """Return the maker of the plugin with the given name.

    :param setting: the setting that contains the name, for error messages.
    :raise SettingsError: no plugin has the name, or several do. The message lists the available plugins and the modules
        that cannot be imported.
    """
    makers = makers_of(provides)
    found = [maker for maker in makers if maker.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise SettingsError(f"{setting}: {len(found)} plugins have the name {name!r}: {', '.join(map(repr, found))}")
    known = ", ".join(sorted(maker.name for maker in makers)) or "none"
    broken = broken_modules()
    import_errors = "".join(f"; {module} could not be imported: {error}" for module, error in broken.items())
    raise SettingsError(f"{setting}: unknown plugin {name!r}; the plugins are: {known}{import_errors}")


def makers_of(provides: InterfaceClass) -> list[IPluginMaker]:
    """Return all makers of plugins with this interface, sorted by name."""
    found: list[Any] = list(getPlugins(IPluginMaker, kreplica.plugins))
    return sorted((maker for maker in found if maker.provides is provides), key=lambda maker: str(maker.name))


def broken_modules() -> dict[str, str]:
    """Return the plugin modules that cannot be imported, with their errors."""
    broken = {}
    for module in getModule(kreplica.plugins.__name__).iterModules():
        try:
            module.load()
        except Exception as error:
            broken[module.name] = f"{type(error).__name__}: {error}"
    return dict(sorted(broken.items()))
