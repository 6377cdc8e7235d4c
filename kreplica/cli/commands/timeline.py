"""``kreplica timeline``: events of the cluster, oldest first, and new events as they happen."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import click
from twisted.internet.defer import CancelledError
from twisted.internet.task import deferLater

from kreplica.cli.http.rest import AdminUnreachable, RestClient
from kreplica.cli.http.session import Session, with_session
from kreplica.cli.terminal.screen import Screen, echo, time_text

RETRY_S = 1.0
RETRIES_MAX = 30


@click.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of entries.")
@click.option("--before", metavar="ID", help="Only entries older than the one with this ID.")
@click.option("--kind", help="Only entries of this kind.")
@click.option("--follow", "-f", is_flag=True, help="Also print new entries as they arrive, until Ctrl-C is pressed.")
@with_session
def command(session: Session, limit: int, before: str | None, kind: str | None, follow: bool) -> None:
    """Show the latest events of all brokers, oldest first.

    With --follow --json, each entry is printed as one line.
    """
    if follow and before is not None:
        raise click.UsageError("--follow and --before cannot be combined")
    query = {"limit": limit, "before": before, "kind": kind}
    if follow:
        session.run_with_client(lambda client: _TimelineFollower(session, kind).run(client, query))
    else:
        session.show(session.get("/v1/timeline", query), _print_entries)


def _print_entries(screen: Screen, document: dict[str, Any]) -> None:
    columns = ("TIME", "BROKER", "KIND", "SUBJECT", "")
    rows = [_row(entry) for entry in reversed(document["entries"])]
    screen.table(columns, rows, empty_text="No events.")
    for problem in document.get("problems") or []:
        screen.line(f"Incomplete: {problem}")


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    return time_text(entry["at_ms"]), entry["broker_id"], entry["kind"], entry["subject"], entry["text"]


class _TimelineFollower:
    """Prints past entries, then new ones; reconnects if the connection is lost."""

    def __init__(self, session: Session, kind: str | None) -> None:
        self._session = session
        self._kind = kind
        self._screen = Screen()
        self._last_id: str | None = None
        self._shown: dict[str, None] = {}
        """IDs of recently printed entries; past and new entries can overlap."""

    async def run(self, client: RestClient, query: dict[str, Any]) -> None:
        document = await client.get("/v1/timeline", query)
        for entry in reversed(document["entries"]):
            self._show(entry)
            self._last_id = str(entry["id"])
        failures = 0
        try:
            while failures < RETRIES_MAX:
                before = self._last_id
                try:
                    await self._follow(client)
                    failures = 0
                except AdminUnreachable as error:
                    failures = 1 if self._last_id != before else failures + 1
                    if failures >= RETRIES_MAX:
                        raise
                    echo(f"kreplica: {error}; retrying", err=True)
                await deferLater(client.reactor, RETRY_S)
        except CancelledError:
            return  # Ctrl-C is the normal way to stop

    async def _follow(self, client: RestClient) -> None:
        async with aclosing(client.events("/v1/events", last_event_id=self._last_id)) as events:
            async for event in events:
                if event.name == "timeline":
                    self._last_id = event.event_id or self._last_id
                    self._show(json.loads(event.data))

    def _show(self, entry: dict[str, Any]) -> None:
        name = str(entry["id"])
        if name in self._shown or (self._kind is not None and entry["kind"] != self._kind):
            return
        self._shown[name] = None
        if len(self._shown) > 2000:
            del self._shown[next(iter(self._shown))]
        if self._session.as_json:
            click.echo(json.dumps(entry))
            return
        at, broker, kind, subject, text = _row(entry)
        self._screen.line(f"{at}  {broker!s:>3}  {kind:<12} {subject}  {text}")
