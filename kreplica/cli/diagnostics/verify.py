"""``kreplica verify``: run a workload on any Kafka-compatible cluster, and verify the records that clients read."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import click
from rich.console import Console
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from kreplica.cli.diagnostics.verify_report import ProgressLine, describe
from kreplica.cli.profiles.choice import profile_option
from kreplica.cli.records.data_access import brokers_option, client_config, given_or_profile_bootstrap
from kreplica.client_core.addresses import parse_addresses
from kreplica.runtime import real_runtime
from kreplica.testing.verification.cluster_access import CouldNotRun
from kreplica.testing.verification.options import ACKS_ALL, VerificationOptions
from kreplica.testing.verification.verdict import Verdict
from kreplica.testing.verification.verification import Verification

FAILED, COULD_NOT_RUN = 1, 2
WIDTH_WITHOUT_TERMINAL = 140


def _parse_configs(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise click.BadParameter(f"{text!r}: expected NAME=VALUE, for example segment.bytes=1048576")
    configs = dict(text.split("=", 1) for text in texts)
    if not configs.get("max.message.bytes", "0").isdecimal():
        raise click.BadParameter(f"max.message.bytes={configs['max.message.bytes']!r}: expected a number")
    return configs


@click.command(context_settings={"show_default": True})
@brokers_option(purpose="Bootstrap brokers.  [default: those of the profile]", envvar="KREPLICA_BOOTSTRAP",
                show_envvar=True, show_default=False)  # fmt: skip
@profile_option
@click.option("--seconds", type=click.FloatRange(min=1), default=30.0, help="Duration of the workload in seconds.")
@click.option("--settle-seconds", "settle_s", type=click.FloatRange(min=1), default=60.0,
              help="After the workload, give up if there is no progress for this many seconds.")  # fmt: skip
@click.option("--acks", type=click.Choice(["all", "1"]), default="all", help="Acknowledgements that producers require.")
@click.option("--rate", "records_per_s", type=click.FloatRange(min=0, min_open=True), default=500.0,
              help="Records per second in total, across all producers.")  # fmt: skip
@click.option(
    "--batch", "batch_records", type=click.IntRange(1, 10_000), default=5, help="Average number of records per batch."
)
@click.option("--value-size", "value_size_max", type=click.IntRange(0, 1 << 20), default=200,
              help="Maximum value size in bytes.")  # fmt: skip
@click.option("--producers", type=click.IntRange(1, 100), default=1, help="Producers per partition.")
@click.option("--partitions", type=click.IntRange(1, 1000), default=3, help="Number of partitions of the topic.")
@click.option("--replication-factor", type=click.IntRange(min=1),
              help="Replication factor of the topic.  [default: 3, or the number of brokers]")  # fmt: skip
@click.option("--min-insync-replicas", "min_in_sync", type=click.IntRange(min=1),
              help="min.insync.replicas of the topic.  [default: replicas - 1, at least 1]")  # fmt: skip
@click.option("--config", "configs", multiple=True, callback=_parse_configs, metavar="NAME=VALUE",
              help="An additional topic setting; may be repeated.")  # fmt: skip
@click.option("--topic", default="", show_default=False,
              help="Name of the topic to create.  [default: kreplica-verify- and a random suffix]")  # fmt: skip
@click.option("--keep", is_flag=True, help="Do not delete the topic.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")
def command(bootstrap: str | None, acks: str, as_json: bool, **values: Any) -> None:
    """Run a workload on any Kafka-compatible cluster and report violated guarantees.

    Idempotent producers write to a new topic and consumers read it while you inject faults.  At the end, every record
    must have been acknowledged and read.  The command then compares the histories of all clients: no record may be
    lost, duplicated, changed or out of order.

    Exit status: 0 if every guarantee held, 1 if any was violated, 2 if the check could not run.  The first Ctrl-C stops
    the workload, the second one ends the command.

    \b
    kreplica verify --bootstrap 127.0.0.1:9092
    kreplica verify --bootstrap kafka-1:9092,kafka-2:9092 --seconds 600 --rate 2000
    kreplica verify --bootstrap 127.0.0.1:9092 --acks 1 --json
    """
    addresses = given_or_profile_bootstrap(bootstrap)
    if addresses is None:
        raise click.UsageError("Missing option '--bootstrap', and there is no profile")
    if client_config():
        raise click.UsageError("verify connects without TLS and SASL, but the profile has security settings")
    options = VerificationOptions(parse_addresses(addresses), acks=ACKS_ALL if acks == "all" else int(acks), **values)
    if options.batch_size_max > options.message_size_max:
        raise click.UsageError(
            f"batches of up to {options.batch_size_max:,} bytes exceed the topic's limit of "
            f"{options.message_size_max:,} bytes: lower --batch or --value-size, or --config max.message.bytes=..."
        )
    errors = Console(stderr=True)
    try:
        verdict = _run(options, errors)
    except CouldNotRun as error:
        errors.print(f"kreplica verify: {error}", markup=False, highlight=False, soft_wrap=True)
        raise SystemExit(COULD_NOT_RUN) from None
    if as_json:
        click.echo(json.dumps(verdict.as_json(), indent=2))
    else:
        out = Console()
        describe(verdict, out if out.is_terminal else Console(width=WIDTH_WITHOUT_TERMINAL))
    _exit(verdict)


def _exit(verdict: Verdict) -> NoReturn:
    raise SystemExit(0 if verdict.clean else FAILED)


def _run(options: VerificationOptions, screen: Console) -> Verdict:
    """Run the reactor until the verification ends, and return its result or raise its error."""
    from twisted.internet import reactor as global_reactor

    reactor: Any = global_reactor
    outcome: list[Verdict | Failure] = []

    def start() -> None:
        running = Deferred.fromCoroutine(verification.run())
        _on_interrupts(lambda: reactor.callFromThread(verification.stop_early),
                       lambda: reactor.callFromThread(running.cancel))  # fmt: skip
        running.addBoth(outcome.append)
        running.addBoth(lambda _: reactor.stop())

    with ProgressLine(screen) as line:
        verification = Verification(real_runtime(reactor), options, line.show)
        reactor.callWhenRunning(start)
        reactor.run()
    if not outcome:
        raise CouldNotRun("ended without a result; the topic may still exist")
    result = outcome[0]
    if isinstance(result, Failure):
        if result.check(CancelledError):
            raise CouldNotRun("interrupted without a result")
        result.raiseException()
    assert isinstance(result, Verdict)
    return result


def _on_interrupts(*actions: Callable[[], object]) -> None:
    """Run one action per interrupt (SIGINT), in order; the next interrupt after the last action ends the process."""
    remaining = iter(actions)

    def interrupted(number: int, frame: FrameType | None) -> None:
        action = next(remaining, None)
        if action is None:
            signal.default_int_handler(number, frame)
        else:
            action()

    signal.signal(signal.SIGINT, interrupted)
