"""A format of keys and values that the settings select."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kreplica.interfaces import IPluginMaker


class FormatPlugin(NamedTuple):
    """A format that the admin API creates once the schema registry client exists.

    :param settings: the plugin's own settings without the prefix ``kreplica.plugin.NAME.``.
    """

    maker: IPluginMaker
    settings: Mapping[str, str]
