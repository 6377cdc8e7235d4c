"""Creates the plugins that a broker's settings select."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from zope.interface.interface import InterfaceClass

from kreplica.controller.state.context import Preference
from kreplica.errors import SettingsError
from kreplica.interfaces import (
    IAuthorizer,
    IExtraListener,
    ILeaderElection,
    IMetricsReporter,
    IPluginMaker,
    IProduceInterceptor,
    IRecordFormat,
    IReplicaPlacement,
    ISaslMechanism,
    PluginContext,
)
from kreplica.runtime import Runtime
from kreplica.server.handlers.topics.topic_admin import Place, place_evenly
from kreplica.server.produce.interception import Interception, Interceptor
from kreplica.service.plugins.broker_view import PluginBroker, PluginDependencies
from kreplica.service.plugins.discovery import find
from kreplica.service.plugins.format_plugin import FormatPlugin
from kreplica.service.plugins.led_partitions import Roles
from kreplica.service.plugins.plugin_decisions import ChosenElection, ChosenPlacement
from kreplica.service.plugins.plugin_failures import PluginFailures
from kreplica.service.plugins.plugin_lifecycle import ExtraListeners, Listener, MetricsReporting, Reporter
from kreplica.service.plugins.sasl_mechanisms import ENABLED, ChosenMechanism, plugin_mechanisms
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.settings.names import PLUGIN_PREFIX

if TYPE_CHECKING:
    from kreplica.admin.resources.metrics import MetricsSource
    from kreplica.security.acls.authorizer import AclAuthorizer
    from kreplica.server.authorization import Permissions

PLACEMENT, ELECTION, AUTHORIZER = "kreplica.placement", "kreplica.leader.election", "kreplica.authorizer"
INTERCEPTORS, REPORTERS = "kreplica.produce.interceptors", "kreplica.metrics.reporters"
LISTENERS, FORMATS = "kreplica.extra.listeners", "kreplica.record.formats"

BUILT_IN = {PLACEMENT: "racks", ELECTION: "assigned", AUTHORIZER: "allow-all"}
"""Setting values that select built-in behaviour, for which no plugin is loaded."""


class Plugins:
    """The plugins of one broker; created before its other parts.

    :ivar place: places new replicas.
    :ivar preference: orders the candidates of an election; None to use the assignment's order.
    :ivar permissions: authorizes requests; None if everything is allowed.
    :ivar acl_authorizer: the authorizer that uses ACLs; None without ``authorizer.class.name``.
    :ivar sasl_mechanisms: SASL mechanisms provided by plugins, by name.
    :ivar interception: intercepts produced batches; None without interceptors.
    :ivar formats: key and value formats by name; the admin API creates them.
    :ivar roles: the plugins that follow partitions led by this broker.
    :raise SettingsError: a plugin does not exist or rejects its settings.
    """

    def __init__(self, broker: PluginDependencies, runtime: Runtime, settings: BrokerSettings) -> None:
        self._broker = broker
        self._runtime = runtime
        self._settings = settings
        self._failures: dict[str, PluginFailures] = {}
        self._made: dict[tuple[str, InterfaceClass], Any] = {}
        self._makers: dict[str, list[IPluginMaker]] = {}
        self.roles = Roles()
        self.place: Place = self._one(PLACEMENT, IReplicaPlacement, ChosenPlacement) or place_evenly
        self.preference: Preference | None = self._one(ELECTION, ILeaderElection, ChosenElection)
        self.permissions: Permissions | None = self._one(AUTHORIZER, IAuthorizer, _permissions)
        self.acl_authorizer = _acl_authorizer(settings, runtime)
        if self.acl_authorizer is not None:
            if self.permissions is not None:
                raise SettingsError(f"only one of {AUTHORIZER} and authorizer.class.name may be set")
            self.permissions = _permissions(self.acl_authorizer, PluginFailures(runtime.reactor, "AclAuthorizer"))
        self.sasl_mechanisms = {
            name: ChosenMechanism(*self._plugin(ENABLED, name, ISaslMechanism)) for name in plugin_mechanisms(settings)
        }
        interceptors = [
            Interceptor(failures.name, plugin, failures.record_exception)
            for plugin, failures in self._all(INTERCEPTORS, IProduceInterceptor)
        ]
        self.interception = Interception(interceptors) if interceptors else None
        interval_s = settings["kreplica.metrics.report.interval.ms"] / 1000
        reporters = [Reporter(*each) for each in self._all(REPORTERS, IMetricsReporter)]
        self.has_reporters = bool(reporters)
        self._reporting = MetricsReporting(runtime.reactor, reporters, interval_s)
        listeners = [Listener(*each) for each in self._all(LISTENERS, IExtraListener)]
        self._listeners = ExtraListeners(runtime.reactor, listeners)
        self.formats = {name: self._format(name) for name in settings[FORMATS]}
        self._check_settings()

    def errors(self) -> Mapping[str, int]:
        """Return the number of failures of each plugin."""
        return {name: failures.errors for name, failures in sorted(self._failures.items())}

    async def start(self, new_source: Callable[[], MetricsSource]) -> None:
        """Start reporters and listeners; called once the broker serves clients.

        :raise KreplicaError: a required listener cannot start.
        """
        self._reporting.start(new_source)
        await self._listeners.start()

    async def stop(self) -> None:
        """Stop reporters and listeners; called before the broker stops its other parts."""
        self._reporting.stop()
        await self._listeners.stop()

    # --- creation -------------------------------------------------------------------------------------------------

    def _one(self, setting: str, provides: InterfaceClass, use: Callable[[Any, PluginFailures], Any]) -> Any:
        name = self._settings[setting]
        if name == BUILT_IN[setting]:
            return None
        return use(*self._plugin(setting, name, provides))

    def _all(self, setting: str, provides: InterfaceClass) -> Iterator[tuple[Any, PluginFailures]]:
        names = self._settings[setting]
        for name in names:
            if names.count(name) > 1:
                raise SettingsError(f"{setting}: {name} is listed twice")
            yield self._plugin(setting, name, provides)

    def _plugin(self, setting: str, name: str, provides: InterfaceClass) -> tuple[Any, PluginFailures]:
        maker = find(setting, name, provides)
        failures = self._failures.setdefault(name, PluginFailures(self._runtime.reactor, name))
        self._makers.setdefault(name, []).append(maker)
        view = PluginBroker(self._broker, self.roles, name)
        context = PluginContext(name, self._settings_of(name), self._runtime, view)
        try:
            return maker.make(context), failures
        except ValueError as error:
            raise SettingsError(f"{setting}: the plugin {name} cannot be created: {error}") from error
        except Exception as error:
            raise SettingsError(f"{setting}: the plugin {name} failed while it was created: {error!r}") from error

    def _format(self, name: str) -> FormatPlugin:
        maker = find(FORMATS, name, IRecordFormat)
        self._makers.setdefault(name, []).append(maker)
        return FormatPlugin(maker, self._settings_of(name))

    def _settings_of(self, name: str) -> dict[str, str]:
        prefix = f"{PLUGIN_PREFIX}{name}."
        return {
            full_name.removeprefix(prefix): self._settings.text(full_name) or ""
            for full_name in self._settings.configured_names
            if full_name.startswith(prefix)
        }

    def _check_settings(self) -> None:
        """Reject settings for plugins that are not configured, and settings that a plugin does not define."""
        for full_name in self._settings.configured_names:
            if full_name.startswith(PLUGIN_PREFIX):
                self._check_setting(full_name)

    def _check_setting(self, full_name: str) -> None:
        name_and_setting = full_name.removeprefix(PLUGIN_PREFIX)
        name = next((name for name in self._makers if name_and_setting.startswith(f"{name}.")), None)
        if name is None:
            names = ", ".join(sorted(self._makers)) or "none"
            raise SettingsError(f"{full_name}: it belongs to no configured plugin; the configured plugins are: {names}")
        setting = name_and_setting.removeprefix(f"{name}.")
        known = [each for maker in self._makers[name] for each in maker.settings]
        if setting not in known and not any(k.endswith("*") and setting.startswith(k[:-1]) for k in known):
            near = get_close_matches(setting, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has: {', '.join(known) or 'none'}"
            raise SettingsError(f"{full_name}: the plugin {name} has no setting {setting!r}; {hint}")


def _acl_authorizer(settings: BrokerSettings, runtime: Runtime) -> AclAuthorizer | None:
    if not settings["authorizer.class.name"]:
        return None
    # Imported only with the authorizer.
    from kreplica.security.acls.authorizer import AclAuthorizer, parse_super_users
    from kreplica.security.acls.rules import AclRules

    try:
        super_users = parse_super_users(settings["super.users"])
    except ValueError as error:
        raise SettingsError(f"super.users: {error}") from None
    return AclAuthorizer(
        AclRules(),
        super_users,
        runtime.reactor.seconds,
        allow_without_acls=settings["allow.everyone.if.no.acl.found"],
    )


def _permissions(plugin: Any, failures: PluginFailures) -> Permissions:
    # Imported only with an authorizer, because it contains a rule for every API.
    from kreplica.server.authorization import Permissions

    return Permissions(plugin, failures.record_exception)
