"""``kreplica tls``: certificates for development."""

from __future__ import annotations

from pathlib import Path

import click

from kreplica.errors import SettingsError


@click.group()
def command() -> None:
    """Certificates for development and tests."""


@command.command("dev-ca", short_help="Create a certificate authority and certificates.")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    default=("localhost", "127.0.0.1", "::1"),
    show_default=True,
    help="Host name or IP address for which the brokers' certificate is valid; may be repeated.",
)
@click.option("--broker", default="broker", show_default=True,
              help="File name (without .pem) and common name of the brokers' certificate.")  # fmt: skip
@click.option("--client", "clients", multiple=True,
              help="Create a certificate for a client with this name; may be repeated.")  # fmt: skip
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True,
              help="Validity of new certificates in days.")  # fmt: skip
def dev_ca(directory: Path, hosts: tuple[str, ...], broker: str, clients: tuple[str, ...], days: int) -> None:
    """Create a certificate authority, a certificate for brokers, and certificates for clients in DIRECTORY.

    Existing files in DIRECTORY are kept and reused.  The private keys are not encrypted: use them only in development
    and tests.  The command prints the settings for the brokers and for the first client.
    """
    for name in (broker, *clients):
        if not name or "/" in name or name in ("ca", ".", ".."):
            raise click.UsageError(f"{name!r} cannot be the name of a certificate")
    # Imported here because it imports OpenSSL.
    from kreplica.security.tls.development_ca import create_certificate, open_authority

    try:
        authority = open_authority(directory, days)
        for name, valid_for in ((broker, hosts), *((name, ()) for name in clients)):
            if not (directory / f"{name}.pem").exists():
                create_certificate(directory, authority, name, valid_for, days)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    target = directory.resolve()
    click.echo("# broker (server.properties)")
    click.echo("listeners=SSL://127.0.0.1:9093\nsecurity.inter.broker.protocol=SSL")
    _show_settings(target, broker)
    click.echo("\n# clients")
    click.echo("security.protocol=SSL")
    _show_settings(target, clients[0] if clients else None)


def _show_settings(directory: Path, name: str | None) -> None:
    if name is not None:
        click.echo(f"ssl.keystore.type=PEM\nssl.keystore.location={directory / name}.pem")
    click.echo(f"ssl.truststore.type=PEM\nssl.truststore.location={directory}/ca.pem")
