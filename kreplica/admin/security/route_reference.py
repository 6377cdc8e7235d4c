"""Table of the permissions of all routes, for ``docs/reference/rest.md``."""

from __future__ import annotations

from kreplica.admin.security.route_rules import RULES


def permissions_table() -> str:
    """Return the table in Markdown: permissions, and the routes that require them."""
    routes: dict[str, list[str]] = {}
    for name, rule in RULES.items():
        routes.setdefault(rule.text, []).append(f"`{name.replace(':path}', '}')}`")
    rows = [f"| {text} | {', '.join(names)} |" for text, names in routes.items()]
    return "\n".join(["| Permission | Requests |", "|---|---|", *rows])


if __name__ == "__main__":
    print(permissions_table())
