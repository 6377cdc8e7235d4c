"""Description of a plugin, and creation of its object for each broker that selected it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from twisted.plugin import IPlugin
from zope.interface import Attribute, implementer
from zope.interface.interface import InterfaceClass

from kreplica.interfaces.context import PluginContext
from kreplica.interfaces.formats import FormatContext


class IPluginMaker(IPlugin):
    """A plugin that ``twisted.plugin`` finds in ``kreplica.plugins``; creates one object per broker that selects it."""

    name: str = Attribute("Name in the settings; the plugin's own settings begin with kreplica.plugin.NAME.")
    provides: InterfaceClass = Attribute("The interface that its objects provide.")
    description: str = Attribute("One sentence for lists of plugins.")
    settings: Mapping[str, str] = Attribute("Names of its settings without kreplica.plugin.NAME., with descriptions.")

    def make(context: PluginContext | FormatContext) -> Any:
        """Create the object, once, before the broker starts; ``context.broker`` works once the broker is running.

        A record format receives a ``FormatContext``.

        :raise ValueError: a setting is missing or invalid; the broker reports the message and does not start.
        """


@implementer(IPluginMaker)
@dataclass(frozen=True, slots=True)
class Plugin:
    """Default implementation of ``IPluginMaker``.

    :param factory: ``package.module:callable``, imported when selected; called with the ``PluginContext``.
    """

    name: str
    provides: InterfaceClass
    factory: str
    description: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def make(self, context: PluginContext | FormatContext) -> Any:
        module, _, attribute = self.factory.partition(":")
        return getattr(import_module(module), attribute)(context)
