"""Builds one broker from its parts, starts it and stops it.

The clock, randomness, disk and network come from the ``Runtime``, so the same code runs in production and simulation.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.controller.dependencies import ControllerDependencies
from kreplica.controller.journal.journaled_controller import journaled
from kreplica.coordination import BrokerConnections
from kreplica.membership.controlled_shutdown import ControlledShutdown
from kreplica.membership.controller_lookup import read_elected_controller
from kreplica.membership.incarnation import Incarnations
from kreplica.membership.log_dir_events import LogDirEvents
from kreplica.membership.producer_ids import ProducerIds
from kreplica.membership.registration import create_persistent_paths, read_or_create_cluster_id
from kreplica.membership.session import Membership
from kreplica.membership.settings.dynamic_settings import DynamicSettings
from kreplica.membership.settings.settings_writer import SettingsWriter
from kreplica.membership.stale_session import end_previous_session, forget_session, remember_session
from kreplica.membership.startup_retries import StartupSteps
from kreplica.model import BrokerRegistration, Endpoint
from kreplica.replication import ControlFence, Purgatory
from kreplica.runtime import Runtime
from kreplica.runtime.stalls import StallWatch
from kreplica.server.fetch.sessions import FetchSessions
from kreplica.server.handlers.topics.topic_admin import TopicAdmin, TopicDefaults
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.control_admission import ControlAdmission
from kreplica.server.transport.flush_scope import FlushScope
from kreplica.server.transport.listeners import Server
from kreplica.service.broker.bearer_tokens import BearerTokens
from kreplica.service.broker.connection_settings import ConnectionLimitsUpdate
from kreplica.service.broker.coordinators import Coordinators
from kreplica.service.broker.delegation_tokens import start_token_sweep, token_store
from kreplica.service.broker.listener_certificates import ListenerCertificates
from kreplica.service.broker.listener_security import Authenticators, broker_endpoints, listener_sasl, shared_port
from kreplica.service.broker.peers import Peers
from kreplica.service.broker.readiness import not_ready, wait_until_served
from kreplica.service.broker.replication import Replication
from kreplica.service.broker.server_building import build_server
from kreplica.service.broker.settings_maps import (
    admin_listener,
    advertised_endpoints,
    client_quotas,
    controlled_shutdown_config,
    controller_config,
    inter_broker_host,
    journal_settings,
    storage_config,
    telemetry_clients,
)
from kreplica.service.broker.watches import Watches
from kreplica.service.broker.zookeeper_clients import ZooKeeperClients
from kreplica.service.composition.start_timings import StartTimings
from kreplica.service.composition.stopping import stop_all
from kreplica.service.composition.stray_removal import StrayRemoval
from kreplica.service.metrics.broker_metrics import BrokerMetrics
from kreplica.service.plugins import Plugins
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.storage.directories.log_directories import LogDirectories

if TYPE_CHECKING:
    from kreplica.admin.http.site import AdminSite
    from kreplica.admin.resources.standalone import StandaloneBrokers

log = Logger()


class Broker:
    """A broker; started once and stopped once.

    :param settings: the validated ``server.properties``.
    :param failed: called with a one-line reason when the broker cannot continue; by default the broker stops itself.
    :ivar standalone: controls the brokers of a process that runs several on virtual hosts; None otherwise.
    """

    def __init__(self, runtime: Runtime, settings: BrokerSettings, failed: Callable[[str], None] | None = None) -> None:
        self.runtime = runtime
        self.settings = settings
        self._failed = failed or self._stop_in_background
        self.broker_id: int = settings["broker.id"]
        self.certificates = ListenerCertificates(runtime, settings)
        self.inter_broker_endpoint, control_plane_endpoint = broker_endpoints(runtime, settings, self.certificates)
        self.plugins = Plugins(self, runtime, settings)
        self.bearer_tokens = BearerTokens(runtime, settings)
        self._zookeeper_clients = ZooKeeperClients(runtime, settings)
        self.client = self._zookeeper_clients.new()
        self.fence = ControlFence()
        self.control_admission = ControlAdmission(
            runtime.reactor, self.fence, partial(read_elected_controller, self.client)
        )
        self.producer_ids = ProducerIds(self.client, self.broker_id)
        self.dynamic_settings = DynamicSettings(
            runtime, self.client, settings, self._topic_settings_changed, self.certificates
        )
        self.quotas = client_quotas(settings, runtime.reactor.seconds)
        self.connection_limits = ConnectionLimitsUpdate(runtime.reactor, settings, self.dynamic_settings, self.quotas)
        tokens = token_store(runtime, self.client, settings)
        replace_quotas = self.connection_limits.replace_quotas
        subscriptions = self.dynamic_settings.client_metrics
        self.watches = Watches(runtime, self.client, self.plugins.acl_authorizer, replace_quotas, subscriptions, tokens)
        self.telemetry = telemetry_clients(runtime, settings, subscriptions)
        self._stop_token_sweep: Callable[[], None] = lambda: None
        self.directories = LogDirectories(runtime, settings.log_dirs, storage_config(settings, runtime.open_files_max))
        self.fetch_sessions = self._make_fetch_sessions()
        self.incarnations = Incarnations(runtime, self.directories)
        self.log_dir_events = LogDirEvents(runtime.reactor, self.client, self.broker_id)
        self.directories.on_offline(lambda _: self.log_dir_events.directory_failed())
        self.membership = self._make_membership()
        config = controller_config(settings, self.dynamic_settings, control_plane_endpoint, self.plugins.preference)
        self.controller, self._close_journal = journaled(
            ControllerDependencies.real(runtime, self.client, config), journal_settings(settings)
        )
        self.flush_scope = FlushScope(runtime.reactor)
        self.metadata = MetadataCache(runtime.reactor)
        self.topic_admin = self._make_topic_admin()
        self.peers = Peers(self.broker_id, self.metadata, settings.inter_broker_listener)
        self.replication = Replication(self, Purgatory(self.flush_scope.at_end))
        self.partitions = self.replication.partitions
        self.plugins.roles.observe(self.partitions)
        self.coordinators = Coordinators(self)
        self.server: Server | None = None
        self._ports: dict[str, int] = {}
        self.admin: AdminSite | None = None
        self.standalone: StandaloneBrokers | None = None
        self.stalls = StallWatch(runtime.reactor, settings["kreplica.stall.log.ms"] / 1000)
        self.flush_scope.slices.on_long = self.stalls.note
        self._opened = False
        self.stopping = False
        self._joined_once = False
        self._settings_session = 0
        """ID of the ZooKeeper session in which the settings and watches were read."""
        self._stray_removal = StrayRemoval(
            runtime.reactor, self.client, self.directories, self.broker_id, self.fence, self.partitions
        )

    def _make_fetch_sessions(self) -> FetchSessions:
        slots = self.settings["max.incremental.fetch.session.cache.slots"]
        return FetchSessions(self.runtime.random, slots, self.settings["kreplica.fetch.session.partitions.max"])

    def _make_membership(self) -> Membership:
        reactor, random = self.runtime.reactor, self.runtime.random
        incarnations = self.incarnations
        return Membership(
            reactor, random, self.client, self._on_joined, lambda: incarnations.intact_since, self._on_replaced
        )

    def _make_topic_admin(self) -> TopicAdmin:
        settings = self.settings
        return TopicAdmin(
            self.runtime,
            self.client,
            self.metadata,
            lambda: TopicDefaults(settings["num.partitions"], settings["default.replication.factor"]),
            self.dynamic_settings.check_topic,
            self.plugins.place,
            lambda: self.watches.cordoned.brokers,
        )

    # --- start -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the logs, listen and register; return when the broker can serve clients.

        :raise KreplicaError: a port, directory or broker ID is in use, the data belongs to another cluster, or
            ZooKeeper is unreachable. The message states the remedy.
        """
        for warning in self.settings.warnings:
            log.warn("{warning}", warning=warning)
        connect = self.settings["zookeeper.connect"]
        # Holding the lock proves that the previous process has ended, so its ZooKeeper session may be closed.
        self.directories.lock()
        timings = StartTimings(self.runtime.reactor.seconds)
        steps = StartupSteps(self.runtime, self.client)
        await steps.connect(connect)
        timings.done("session")
        clients, directory = self._zookeeper_clients, self.settings.log_dirs[0]
        ended = end_previous_session(self.runtime.disk, directory, connect, clients.resume)
        await steps.with_progress_log("the end of the previous session with ZooKeeper", ended)
        timings.done("previous session")
        cluster_id = await self._read_cluster(steps)
        timings.done("cluster and settings")
        self.metadata.cluster_id = cluster_id
        await self.directories.open(
            cluster_id, self.broker_id, self.dynamic_settings.log_config, self.incarnations.is_intact
        )
        self._opened = True
        timings.done("logs")
        self.incarnations.begin()
        last_epoch = self.incarnations.last_epoch
        await steps.run("the replica assignments in ZooKeeper", lambda: self._stray_removal.at_start(last_epoch))
        timings.done("assignment")
        self.directories.start(self.partitions.high_watermarks)
        self.server = build_server(self, self.topic_admin)
        self.fence.reject_registrations_up_to(self.client.last_zxid)
        self.bearer_tokens.start()
        endpoints = self._listen(self.server)
        self._start_admin()
        if not self.runtime.is_simulated:
            self.stalls.start()  # after the web framework has been imported, which is not a stall that delays clients
        registration = self._registration(endpoints)
        timings.done("listeners")
        await steps.run("the registration in ZooKeeper", lambda: self._register(registration))
        timings.done("registration")
        self.controller.start()
        self._stop_token_sweep = start_token_sweep(
            self.runtime, self.settings, self.watches.tokens, lambda: self.controller.active
        )
        self.replication.start()
        self.coordinators.start()
        await wait_until_served(self, clients.connection_timeout_ms / 1000)
        timings.done("roles")
        log.info("started in {seconds:.2f} s: {parts}", seconds=timings.total_s, parts=str(timings))
        await self.plugins.start(lambda: BrokerMetrics(self, self.stalls))

    async def _read_cluster(self, steps: StartupSteps) -> str:
        """Create the persistent znodes, read the cluster-wide state and return the cluster ID."""
        client, random = self.client, self.runtime.random
        await steps.run("the persistent znodes of the cluster", lambda: create_persistent_paths(client))
        cluster_id = await steps.run("the cluster ID", lambda: read_or_create_cluster_id(client, random))
        self._settings_session = client.session_id
        await steps.run("the dynamic settings", self.dynamic_settings.start)
        self.dynamic_settings.check_unsupported_security()
        writer = SettingsWriter(self.dynamic_settings, client, self.broker_id)
        await steps.run("the encryption of passwords in ZooKeeper", writer.encrypt_again)
        await steps.run("the cordoned brokers and plans", self.watches.start)
        return cluster_id

    async def _register(self, registration: BrokerRegistration) -> None:
        self._remember_session()  # before registering, since the broker may be killed right afterwards
        await self.membership.join(registration)

    def _listen(self, server: Server) -> tuple[Endpoint, ...]:
        """Bind the listeners and return the endpoints to advertise."""
        scram, plugins = self.dynamic_settings.scram_credentials, self.plugins.sasl_mechanisms
        authenticators = Authenticators(scram, self.bearer_tokens, self.watches.tokens, plugins)
        for endpoint in self.settings.listeners:
            tls = self.certificates.open(endpoint, self.dynamic_settings.effective)
            sasl = listener_sasl(self.runtime, self.settings, endpoint, authenticators)
            self._ports[endpoint.listener] = server.listen(endpoint, tls, sasl, shared_port(self.settings, endpoint))
        return advertised_endpoints(self.settings, self._ports, socket.gethostname())

    def _start_admin(self) -> None:
        listener = admin_listener(self.settings)
        if listener is not None:
            # Imported here because the web framework takes a sixth of a broker's start-up time.
            from kreplica.service.admin.admin_site import admin_site

            self.admin = admin_site(self, self.stalls, listener)
            self.admin.start()
        self.certificates.watch.start()

    def _registration(self, endpoints: tuple[Endpoint, ...]) -> BrokerRegistration:
        host = inter_broker_host(self.settings, endpoints)
        return BrokerRegistration(
            self.broker_id,
            endpoints,
            self.settings["broker.rack"],
            timestamp_ms=self.runtime.wall_clock_ms(),
            admin_url=None if self.admin is None else self.admin.announced_url(host),
        )

    @property
    def connections(self) -> BrokerConnections:
        return self.coordinators.connections

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self._ports[self.settings.listeners[0].listener]

    def _remember_session(self) -> None:
        connect = self.settings["zookeeper.connect"]
        remember_session(self.runtime.disk, self.settings.log_dirs[0], self.client, connect)

    # --- events ------------------------------------------------------------------------------------------------------

    def _on_joined(self, registration: BrokerRegistration) -> None:
        """Handle the first registration, and each later one after a lost session."""
        last_epoch = self.fence.broker_epoch
        self.fence.broker_epoch = registration.epoch
        self.incarnations.registered(registration)
        log.info(
            "broker {broker} has joined with epoch {epoch}, intact since {intact_since}: {endpoints}",
            broker=self.broker_id,
            epoch=registration.epoch,
            intact_since=self.incarnations.intact_since,
            endpoints=", ".join(map(str, registration.endpoints)),
        )
        if self._settings_session != self.client.session_id:
            self._settings_session = self.client.session_id
            self.dynamic_settings.session_renewed()
            self.watches.session_renewed()
        if self._joined_once:
            self._remember_session()
            self.controller.stand_for_election()
            self._stray_removal.after_reregistration(last_epoch)
        self._joined_once = True

    def _topic_settings_changed(self, topic: str) -> None:
        self.partitions.settings_changed(topic)
        self.controller.topic_settings_changed()

    def not_ready(self) -> list[str]:
        """Return the reasons why this broker cannot serve clients, as sentences; empty if it can."""
        return not_ready(self)

    def _on_replaced(self, message: str) -> None:
        """Stop because another broker registered with this ID while this one had no session."""
        log.critical("stopping: {message}", message=message)
        self._failed(message)

    def _stop_in_background(self, _: str) -> None:
        stopped = Deferred.fromCoroutine(self.stop())
        stopped.addErrback(lambda failure: log.failure("stopping failed", failure))

    # --- stop --------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop accepting requests, respond to those in flight, flush the logs and mark them as cleanly closed."""
        if self.stopping:
            return
        self.stopping = True
        await stop_all(
            self.plugins.stop,
            self._hand_over_leadership,
            self.controller.stop,
            self._close_journal,
            self.membership.leave,
            self.dynamic_settings.stop,
            self.watches.stop,
            self._stop_serving,
            self._close_directories,
            self._close_session,
        )

    async def _hand_over_leadership(self) -> None:
        """Move leadership to other brokers while this one still serves clients."""
        config = controlled_shutdown_config(self.settings, self.inter_broker_endpoint)
        if config is not None and self.membership.registered:
            epoch = self.fence.broker_epoch
            reactor = self.runtime.reactor
            await ControlledShutdown(reactor, self.broker_id, epoch, self.peers, config).hand_over()

    async def _stop_serving(self) -> None:
        self._stop_token_sweep()
        self.bearer_tokens.stop()
        if self.server is not None:
            self.metadata.stop()
            self._stray_removal.stop()
            self.coordinators.stop()
            self.control_admission.stop()
            self.connection_limits.stop()
            await self.replication.stop()
            await self.server.stop()
        self.stalls.stop()
        self.certificates.watch.stop()
        if self.admin is not None:
            await self.admin.stop()

    async def _close_directories(self) -> None:
        if self._opened:
            await self.directories.close(self.fence.broker_epoch)
        else:
            self.directories.abandon()

    async def _close_session(self) -> None:
        self.log_dir_events.stop()
        await self.client.close()
        if self._opened:
            forget_session(self.runtime.disk, self.settings.log_dirs[0])
