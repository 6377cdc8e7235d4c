"""How a plugin is found, and one object of it made for each broker that chose it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from twisted.plugin import IPlugin
from zope.interface import Attribute, implementer
from zope.interface.interface import InterfaceClass

from kreplica.interfaces.context import PluginContext


class IPluginMaker(IPlugin):
    """Found by ``twisted.plugin`` in ``kreplica.plugins``; makes one object for each broker that chose it by name."""

    name: str = Attribute("By which settings choose it; its own settings begin with kreplica.plugin.NAME. .")
    provides: InterfaceClass = Attribute("Which of the interfaces below it makes.")
    description: str = Attribute("One sentence, for those who look for a name.")
    settings: Mapping[str, str] = Attribute("Its settings without that prefix, each with a sentence.")

    def make(context: PluginContext) -> Any:
        """Make the object; nothing is started yet, and ``context.broker`` answers once the broker runs.

        Called once, while the broker is built.

        :raise ValueError: a setting is missing or wrong; the broker does not start, and says the message.
        """


@implementer(IPluginMaker)
@dataclass(frozen=True, slots=True)
class Plugin:
    """The maker that nearly every plugin is content with.

    :param factory: ``package.module:callable``, imported when it is chosen; called with the ``PluginContext``.
    """

    name: str
    provides: InterfaceClass
    factory: str
    description: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def make(self, context: PluginContext) -> Any:
        module, _, attribute = self.factory.partition(":")
        return getattr(import_module(module), attribute)(context)
