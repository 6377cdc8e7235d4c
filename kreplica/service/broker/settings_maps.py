"""Converts settings with Kafka's names into the configuration objects of each package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kreplica.client.client_runtime import EndpointMaker
from kreplica.cluster.uuids import random_uuid
from kreplica.controller.dependencies import ControllerConfig
from kreplica.controller.journal.files import JournalSettings
from kreplica.controller.state.context import Preference
from kreplica.errors import SettingsError
from kreplica.groups.classic.config import ClassicConfig
from kreplica.groups.config import ExpiryConfig, GroupsConfig
from kreplica.groups.consumer.assignors import ASSIGNORS, Assignor
from kreplica.groups.consumer.config import ConsumerConfig
from kreplica.groups.memory_limits import GroupBounds
from kreplica.groups.offset_memory import OffsetBounds
from kreplica.membership import DynamicSettings
from kreplica.membership.controlled_shutdown import ControlledShutdownConfig
from kreplica.membership.plan_throttle import PlanThrottle
from kreplica.membership.settings.client_metrics import ClientMetrics
from kreplica.model import Endpoint
from kreplica.replication.follower.fetcher_config import FetcherConfig
from kreplica.replication.throttle import UNLIMITED as UNTHROTTLED
from kreplica.replication.throttle import ReplicationThrottle
from kreplica.runtime import Reactor, Runtime
from kreplica.server.protocol.limits import UNLIMITED, Bounds
from kreplica.server.quotas.client_quotas import ClientQuotas
from kreplica.server.telemetry.clients import TelemetryClients
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.storage.log_config import StorageConfig
from kreplica.storage.segments.open_segments import open_segments_max
from kreplica.transactions import TransactionsConfig
from kreplica.transactions.memory_limits import TransactionBounds


def client_quotas(settings: BrokerSettings, seconds: Callable[[], float]) -> ClientQuotas:
    """Return the quotas of a broker's clients, initially without entries.

    :param seconds: clock of the reactor.
    """
    windows, mutation_windows = (
        (settings[f"{prefix}quota.window.num"], float(settings[f"{prefix}quota.window.size.seconds"]))
        for prefix in ("", "controller.")
    )
    return ClientQuotas(seconds, windows, mutation_windows)


def telemetry_clients(runtime: Runtime, settings: BrokerSettings, subscriptions: ClientMetrics) -> TelemetryClients:
    """Return the registry of clients that push metrics to a broker, initially empty."""
    return TelemetryClients(
        runtime.reactor.seconds,
        subscriptions,
        lambda: random_uuid(runtime.random),
        settings["telemetry.max.bytes"],
        settings["kreplica.client.telemetry.bytes.max"],
    )


def bounds(settings: BrokerSettings) -> Bounds:
    """Return the resource limits of client connections."""
    default = Bounds()
    names = settings.configured_names
    idle_ms = settings["connections.max.idle.ms"]
    queued = settings["queued.max.request.bytes"]
    return Bounds(
        request_bytes_max=settings["socket.request.max.bytes"],
        request_bytes_max_without_records=settings["kreplica.request.without.records.max.bytes"],
        parsed_bytes_max=settings["kreplica.request.parsed.max.bytes"],
        requests_outstanding_max=settings["kreplica.connection.outstanding.requests.max"],
        request_bytes_outstanding_max=settings["kreplica.connection.outstanding.request.bytes"],
        response_bytes_outstanding_max=settings["kreplica.connection.outstanding.response.bytes"],
        address_requests_outstanding_max=settings["kreplica.address.outstanding.requests.max"],
        broker_requests_outstanding_max=settings["kreplica.broker.outstanding.requests.max"],
        address_response_bytes_max=settings["kreplica.address.outstanding.response.bytes"],
        broker_response_bytes_max=settings["kreplica.broker.outstanding.response.bytes"],
        partial_bytes_max=queued if queued > 0 else default.partial_bytes_max,
        partial_stall_s=settings["kreplica.partial.request.stall.ms"] / 1000,
        partial_rate_min=settings["kreplica.partial.request.rate.min"],
        idle_s=idle_ms / 1000 if idle_ms > 0 else float(UNLIMITED),
        # Kafka's defaults for the next three settings are too small for fast networks, so they are not used.
        accept_backlog=settings["socket.listen.backlog.size"] if "socket.listen.backlog.size" in names else 1024,
        send_buffer_bytes=settings["socket.send.buffer.bytes"] if "socket.send.buffer.bytes" in names else -1,
        receive_buffer_bytes=settings["socket.receive.buffer.bytes"] if "socket.receive.buffer.bytes" in names else -1,
    )


def storage_config(settings: BrokerSettings, open_files_max: int) -> StorageConfig:
    """Return the configuration of all log directories.

    :param open_files_max: see ``Runtime``.
    """
    return StorageConfig(
        log_flush_offset_checkpoint_interval_ms=settings["log.flush.offset.checkpoint.interval.ms"],
        log_flush_scheduler_interval_ms=settings["log.flush.scheduler.interval.ms"],
        log_retention_check_interval_ms=settings["log.retention.check.interval.ms"],
        replica_high_watermark_checkpoint_interval_ms=settings["replica.high.watermark.checkpoint.interval.ms"],
        producer_id_expiration_ms=settings["producer.id.expiration.ms"],
        log_cleaner_enable=settings["log.cleaner.enable"],
        log_cleaner_backoff_ms=settings["log.cleaner.backoff.ms"],
        log_cleaner_dedupe_buffer_size=settings["log.cleaner.dedupe.buffer.size"],
        log_cleaner_io_max_bytes_per_second=settings["log.cleaner.io.max.bytes.per.second"],
        open_segments_max=open_segments_max(open_files_max),
        partition_producer_ids_max=settings["kreplica.partition.producer.ids.max"],
        broker_producer_ids_max=settings["kreplica.broker.producer.ids.max"],
        scrub_bytes_per_second=settings["kreplica.scrub.bytes.per.second"],
    )


def controller_config(
    settings: BrokerSettings,
    dynamic: DynamicSettings,
    endpoint: EndpointMaker,
    preference: Preference | None = None,
) -> ControllerConfig:
    """Return the configuration of the controller.

    :param endpoint: makes endpoints for connections to the brokers' ``settings.control_plane_listener``.
    """
    return ControllerConfig(
        settings["broker.id"],
        settings.inter_broker_listener,
        dynamic.unclean_election_allowed,
        request_timeout_s=settings["controller.socket.timeout.ms"] / 1000,
        min_insync_replicas=dynamic.min_insync_replicas,
        read_topic_settings=dynamic.read_topics,
        rebalance=settings["auto.leader.rebalance.enable"],
        rebalance_interval_s=float(settings["leader.imbalance.check.interval.seconds"]),
        imbalance_percentage=settings["leader.imbalance.per.broker.percentage"],
        removal_wait_s=settings["kreplica.partition.removal.wait.ms"] / 1000,
        preference=preference,
        endpoint_maker=endpoint,
        control_plane_listener=settings.control_plane_listener,
    )


def journal_settings(settings: BrokerSettings) -> JournalSettings | None:
    """Return the settings of the controller's journal; None if it is disabled."""
    bytes_max = settings["kreplica.controller.journal.max.bytes"]
    if not bytes_max:
        return None
    directory = settings["kreplica.controller.journal.directory"] or settings.log_dirs[0]
    return JournalSettings(directory, settings["broker.id"], bytes_max)


def fetcher_config(settings: BrokerSettings, endpoint: EndpointMaker) -> FetcherConfig:
    """Return the configuration of the follower fetchers."""
    default = FetcherConfig()
    buffer_bytes = "replica.socket.receive.buffer.bytes"
    return FetcherConfig(
        wait_ms_max=settings["replica.fetch.wait.max.ms"],
        bytes_min=settings["replica.fetch.min.bytes"],
        partition_bytes_max=settings["replica.fetch.max.bytes"],
        response_bytes_max=settings["replica.fetch.response.max.bytes"],
        # A batch may be as large as a request, even if it exceeds the fetch size.
        frame_bytes_max=settings["socket.request.max.bytes"] + settings["replica.fetch.response.max.bytes"],
        backoff_s_max=settings["replica.fetch.backoff.ms"] / 1000,
        timeout_s=settings["replica.socket.timeout.ms"] / 1000,
        # Kafka's default is too small for fast networks here as well.
        receive_buffer_bytes=(
            settings[buffer_bytes] if buffer_bytes in settings.configured_names else default.receive_buffer_bytes
        ),
        endpoint=endpoint,
    )


def replication_throttle(
    reactor: Reactor, broker_id: int, dynamic: DynamicSettings, plans: PlanThrottle
) -> ReplicationThrottle:
    """Return the throttle of replica moves, which reads the current settings and plans."""

    def plan_rate() -> int:
        return UNTHROTTLED if plans.bytes_per_second is None else plans.bytes_per_second

    return ReplicationThrottle(
        reactor.seconds,
        broker_id,
        lambda: dynamic.replication_rate("leader"),
        lambda: dynamic.replication_rate("follower"),
        dynamic.partition_settings,
        plan_rate,
    )


def controlled_shutdown_config(settings: BrokerSettings, endpoint: EndpointMaker) -> ControlledShutdownConfig | None:
    """Return the configuration of controlled shutdown; None if it is disabled."""
    if not settings["controlled.shutdown.enable"]:
        return None
    return ControlledShutdownConfig(
        retries_max=settings["controlled.shutdown.max.retries"],
        backoff_s=settings["controlled.shutdown.retry.backoff.ms"] / 1000,
        timeout_s=settings["controller.socket.timeout.ms"] / 1000,
        endpoint=endpoint,
    )


def groups_config(settings: BrokerSettings) -> GroupsConfig:
    """Return the configuration of the group coordinator."""
    return GroupsConfig(
        ClassicConfig(
            initial_rebalance_delay_ms=settings["group.initial.rebalance.delay.ms"],
            session_timeout_ms_min=settings["group.min.session.timeout.ms"],
            session_timeout_ms_max=settings["group.max.session.timeout.ms"],
            size_max=settings["group.max.size"],
        ),
        ExpiryConfig(
            retention_ms=settings["offsets.retention.minutes"] * 60_000,
            check_interval_ms=settings["offsets.retention.check.interval.ms"],
        ),
        ConsumerConfig(
            enabled="consumer" in settings["group.coordinator.rebalance.protocols"],
            session_timeout_ms=settings["group.consumer.session.timeout.ms"],
            heartbeat_interval_ms=settings["group.consumer.heartbeat.interval.ms"],
            size_max=settings["group.consumer.max.size"],
            assignors=tuple(map(_assignor, settings["group.consumer.assignors"])),
        ),
        GroupBounds(
            member_bytes_max=settings["kreplica.group.member.bytes.max"],
            group_bytes_max=settings["kreplica.group.bytes.max"],
            address_bytes_max=settings["kreplica.group.address.bytes.max"],
            bytes_max=settings["kreplica.group.broker.bytes.max"],
        ),
        OffsetBounds(
            group_bytes_max=settings["kreplica.offsets.group.bytes.max"],
            address_bytes_max=settings["kreplica.offsets.address.bytes.max"],
            bytes_max=settings["kreplica.offsets.broker.bytes.max"],
        ),
    )


def _assignor(name: str) -> Assignor:
    for assignor in ASSIGNORS:
        if name in (assignor.name, assignor.class_name):
            return assignor
    known = ", ".join(assignor.name for assignor in ASSIGNORS)
    raise SettingsError(f"group.consumer.assignors: unknown assignor {name!r}; the assignors are {known}")


def transactions_config(settings: BrokerSettings) -> TransactionsConfig:
    """Return the configuration of the transaction coordinator."""
    return TransactionsConfig(
        timeout_ms_max=settings["transaction.max.timeout.ms"],
        abort_interval_ms=settings["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
        expiration_ms=settings["transactional.id.expiration.ms"],
        expiration_interval_ms=settings["transaction.remove.expired.transaction.cleanup.interval.ms"],
        is_two_phase_enabled=settings["transaction.two.phase.commit.enable"],
        memory=TransactionBounds(
            settings["kreplica.transactional.id.address.bytes.max"],
            settings["kreplica.transactional.id.broker.bytes.max"],
        ),
    )


def admin_listener(settings: BrokerSettings) -> tuple[str, int] | None:
    """Return the host and port of the admin listener; None if it is disabled.

    :raise SettingsError: the setting is not HOST:PORT.
    """
    text: str = settings["kreplica.admin.listener"]
    if not text:
        return None
    host, colon, port = text.removeprefix("http://").rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise SettingsError(f"kreplica.admin.listener: {text!r} is not HOST:PORT, such as 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def advertised_endpoints(
    settings: BrokerSettings, ports: Mapping[str, int], host_name: str
) -> tuple[Endpoint, ...]:
    """Return the endpoints to advertise, with missing hosts and ports filled in.

    :param ports: bound ports by listener.
    :param host_name: the machine's name, used for a listener on all interfaces.
    """
    hosts = {endpoint.listener: endpoint.host or host_name for endpoint in settings.listeners}
    return tuple(
        each._replace(host=each.host or hosts[each.listener], port=each.port or ports[each.listener])
        for each in settings.advertised_listeners
    )


def inter_broker_host(settings: BrokerSettings, endpoints: Iterable[Endpoint]) -> str:
    """Return the host at which other brokers reach this one; they send admin requests to no other host.

    :param endpoints: the endpoints that the broker advertises.
    """
    return next(each.host for each in endpoints if each.listener == settings.inter_broker_listener)
