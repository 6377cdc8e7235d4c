"""Implementation of ``kreplica config`` and ``kreplica topic config``."""

from __future__ import annotations

from typing import Any

from kreplica.cli.http.session import Session
from kreplica.cli.terminal.screen import Screen


def show_settings(session: Session, path: str, names: tuple[str, ...], *, include_defaults: bool) -> None:
    """Print settings.

    :param names: settings to print; if empty, all settings that differ from their defaults.
    :param include_defaults: if ``names`` is empty, also print settings that have their default values.
    """
    document = session.get(path)

    def print_settings(screen: Screen, _: object) -> None:
        known_names = {each["name"] for each in document["configs"]}
        rows = [
            (each["name"], _value_text(each), "" if each["is_default"] else each["default_value"], each["source"])
            for each in document["configs"]
            if each["name"] in names or (not names and (include_defaults or not each["is_default"]))
        ]
        for name in names:
            if name not in known_names:
                screen.line(f"Unknown setting: {name}.")
        if rows or not names:
            columns = ("SETTING", "VALUE", "DEFAULT", "SOURCE")
            empty_text = "All settings have their default values (see --all)."
            screen.table(columns, rows, empty_text=empty_text, prose=("VALUE", "DEFAULT"))

    session.show(document, print_settings)


def change_settings(
    session: Session, path: str, *, target: str, changes: dict[str, str], removals: tuple[str, ...], dry_run: bool
) -> None:
    """Set and remove settings in one atomic request.

    :param target: the resource as named in messages, for example ``topic orders``.
    """
    body = {"set": changes, "remove": list(removals)}
    document = session.send("PATCH", path, body, query={"dry_run": dry_run})

    def print_settings(screen: Screen, _: object) -> None:
        for name, value in changes.items():
            screen.line(f"{target}: {name}={value}")
        for name in removals:
            screen.line(f"{target}: {name} was reset to its default")

    session.show_write(document, print_settings)


def _value_text(setting: dict[str, Any]) -> str:
    if setting["sensitive"]:
        return "(hidden)"
    return "" if setting["value"] is None else str(setting["value"])
