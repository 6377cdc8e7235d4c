"""Implementation of ``kreplica config`` and ``kreplica topic config``."""

from __future__ import annotations

from typing import Any

from kreplica.cli.http.session import Session
from kreplica.cli.terminal.screen import Screen


def show_settings(session: Session, path: str, names: tuple[str, ...], *, everything: bool) -> None:
    """Print settings.

    :param names: names of the settings; empty: all that differ from their defaults.
    :param everything: with empty ``names``: include settings with their default values.
    """
    document = session.get(path)

    def describe(screen: Screen, _: object) -> None:
        known = {each["name"] for each in document["configs"]}
        rows = [
            (each["name"], _value(each), "" if each["is_default"] else each["default_value"], each["source"])
            for each in document["configs"]
            if each["name"] in names or (not names and (everything or not each["is_default"]))
        ]
        for name in names:
            if name not in known:
                screen.line(f"Unknown setting: {name}.")
        if rows or not names:
            columns = ("SETTING", "VALUE", "DEFAULT", "SOURCE")
            nothing = "All settings have default values (see --all)."
            screen.table(columns, rows, nothing=nothing, prose=("VALUE", "DEFAULT"))

    session.show(document, describe)


def change_settings(
    session: Session, path: str, *, target: str, changes: dict[str, str], removals: tuple[str, ...], dry_run: bool
) -> None:
    """Set and remove settings in one atomic request.

    :param target: name of the resource in messages: ``topic orders``.
    """
    body = {"set": changes, "remove": list(removals)}
    document = session.send("PATCH", path, body, query={"dry_run": dry_run})

    def describe(screen: Screen, _: object) -> None:
        for name, value in changes.items():
            screen.line(f"{target}: {name}={value}")
        for name in removals:
            screen.line(f"{target}: {name} was reset to its default")

    session.show_written(document, describe)


def _value(setting: dict[str, Any]) -> str:
    if setting["sensitive"]:
        return "(hidden)"
    return "" if setting["value"] is None else str(setting["value"])
