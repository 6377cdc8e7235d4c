"""Settings of topics and brokers: the commands of ``kreplica config`` and of ``kreplica topic config``."""

from __future__ import annotations

from typing import Any

from kreplica.cli.http.session import Session
from kreplica.cli.terminal.screen import Screen


def show_settings(session: Session, path: str, names: tuple[str, ...], *, everything: bool) -> None:
    """Print some settings, or those that are not by default, or all.

    :param names: these; none is those that somebody has set.
    """
    document = session.get(path)

    def describe(screen: Screen, answer: dict[str, Any]) -> None:
        known = {each["name"] for each in answer["configs"]}
        rows = [
            (each["name"], _value(each), "" if each["is_default"] else each["default_value"], each["source"])
            for each in answer["configs"]
            if each["name"] in names or (not names and (everything or not each["is_default"]))
        ]
        for name in names:
            if name not in known:
                screen.line(f"Unknown setting: {name}.")
        if rows or not names:
            columns = ("SETTING", "VALUE", "BY DEFAULT", "FROM")
            nothing = "All settings are at their defaults (--all)."
            screen.table(columns, rows, nothing=nothing, prose=("VALUE", "BY DEFAULT"))

    session.show(document, describe)


def change_settings(
    session: Session, path: str, *, of_what: str, changes: dict[str, str], removals: tuple[str, ...], dry_run: bool
) -> None:
    """Set some settings, remove others, in one write.

    :param of_what: for people: ``topic orders``.
    """
    body = {"set": changes, "remove": list(removals)}
    document = session.send("PATCH", path, body, query={"dry_run": dry_run})

    def describe(screen: Screen, _: object) -> None:
        for name, value in changes.items():
            screen.line(f"{of_what}: {name}={value}")
        for name in removals:
            screen.line(f"{of_what}: {name} was reset to its default")

    session.show_written(document, describe)


def _value(setting: dict[str, Any]) -> str:
    if setting["sensitive"]:
        return "(hidden)"
    return "" if setting["value"] is None else str(setting["value"])
