"""``kreplica pipeline profile``: measure the records of topics; ``spark-submit`` can run the module."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kreplica.cli.http.session import Session, admin_options, admin_session
from kreplica.cli.pipelines.pipeline_session import (
    open_spark,
    parse_options,
    parse_spark_options,
    print_json,
    show_progress,
    spark_options,
)
from kreplica.cli.pipelines.profile_views import print_profile
from kreplica.cli.plans.views import print_preview
from kreplica.cli.records.data_access import (
    bootstrap_option_only,
    client_config_option,
    report_failures,
    resolve_bootstrap,
)
from kreplica.cli.terminal.parameter_types import Size
from kreplica.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from kreplica.cli.http.rest import RestClient


@click.command
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@bootstrap_option_only()
@click.option(
    "--log-dirs", metavar="DIR,...", help="Read the log directories of one broker instead of fetching from brokers."
)
@click.option("--sample", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True,
              help="Fraction of batches whose records are decoded; the headers of all batches are read.")  # fmt: skip
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True,
              help="Number of keys and producers listed per topic.")  # fmt: skip
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE",
              help="A source option, for example startingTimestamp=...; may be repeated.")  # fmt: skip
@click.option("--plan", "balance_by", type=click.Choice(("bytes", "rate")),
              help="Show a rebalance plan that balances bytes, or bytes per second, across brokers.")  # fmt: skip
@click.option("--submit", is_flag=True, help="Create the plan that --plan shows.")
@click.option(
    "--throttle",
    type=Size(),
    metavar="BYTES",
    help="Replication throttle for the plan's moves in bytes/s, for example 50MB.",
)
@admin_options
@client_config_option()
@spark_options
def command(
    topics: tuple[str, ...],
    bootstrap: str | None,
    log_dirs: str | None,
    sample: float,
    top: int,
    options: tuple[str, ...],
    balance_by: str | None,
    submit: bool,
    throttle: int | None,
    url: str,
    token: str | None,
    ca_file: Path | None,
    master: str | None,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure the records of topics: sizes, rates, keys, codecs, producers; by default, of all topics.

    The command reads up to the current high watermarks.  With --sample, keys and the sizes of keys and values are
    measured only in the sample; records, bytes and codecs are counted in all batches.

    With --plan, the admin API computes a rebalance plan for these topics from the measured bytes or rates.  The plan is
    created only with --submit.

    \b
    kreplica pipeline profile orders payments
    kreplica pipeline profile --log-dirs /var/lib/kreplica/1 --sample 0.05 --json
    kreplica pipeline profile --plan bytes --throttle 50MB --submit
    """
    if balance_by is None and (submit or throttle is not None):
        raise click.UsageError("--submit and --throttle require --plan")
    if log_dirs is None:
        source = {"kafka.bootstrap.servers": resolve_bootstrap("bootstrap", bootstrap, url, token, ca_file)}
    else:
        source = {"kreplica.source": "segments", "kreplica.log.dirs": log_dirs}
    source_options = {**parse_options(options), **source, **_topic_selection(topics)}
    spark_settings = parse_spark_options(master, conf)
    with (
        report_failures(lambda: "the profile is not complete"),
        open_spark("kreplica pipeline profile", spark_settings) as spark,
        show_progress() as report,
    ):
        from kreplica.spark.pipelines.profile.profile import profile

        found = profile(spark, source_options, sample=sample, top=top, report=report)
    if not as_json:
        print_profile(Screen(), found)
    plan: dict[str, Any] | None = None
    try:
        if balance_by is not None:
            from kreplica.spark.pipelines.profile.rebalance_plan import rebalance_request

            request = rebalance_request(found, balance_by)
            request |= {} if throttle is None else {"throttle_bytes_per_second": throttle}
            session = admin_session(url, token, ca_file, as_json=as_json)
            plan = session.run_with_client(lambda client: _preview_or_create(session, client, request, submit=submit))
    finally:  # print the measurements even if the plan fails
        if as_json:
            print_json(asdict(found) | {"plan": plan})


def _topic_selection(topics: tuple[str, ...]) -> dict[str, str]:
    """Return the source options that select the topics."""
    return {"subscribe": ",".join(topics)} if topics else {"subscribePattern": ".*"}


async def _preview_or_create(
    session: Session, client: RestClient, request: dict[str, Any], *, submit: bool
) -> dict[str, Any]:
    """Print a preview of the plan, create it if ``submit`` is True, and return the response of the admin API."""
    document: dict[str, Any] = (await client.send("POST", "/v1/plans", request, query={"dry_run": True})).document
    screen = Screen()
    if not session.as_json:
        screen.line()
        print_preview(screen, document)
    if not document["moves_count"]:
        text = "No moves are necessary."
    elif not submit:
        text = "Nothing was changed: use --submit to create this plan."
    else:
        document = (await client.send("POST", "/v1/plans", request)).document
        plan = document["plan"]["id"]
        text = f"Plan {plan} was created.  Follow it with kreplica plan watch {plan}."
    if not session.as_json:
        screen.line(text)
    return document


if __name__ == "__main__":
    command()
