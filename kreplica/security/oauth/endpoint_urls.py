"""URLs of ``sasl.oauthbearer.jwks.endpoint.url`` and ``sasl.oauthbearer.token.endpoint.url``."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from kreplica.errors import SettingsError


@dataclass(frozen=True, slots=True)
class EndpointUrl:
    """URL of an endpoint.

    :param url: the URL as text, without user and password.
    :param path: the path of a ``file://`` URL; None for an HTTP endpoint.
    """

    url: str
    path: str | None = None

    @property
    def place(self) -> str:
        """The URL without its query, for logs and metrics."""
        return self.url.partition("?")[0]

    @property
    def is_secure(self) -> bool:
        """True if the endpoint is accessed over TLS."""
        return self.url.lower().startswith("https:")


def parse_endpoint_url(text: str, setting: str) -> EndpointUrl:
    """Parse a setting that contains a URL.

    :param setting: name of the setting, for the error message.
    :raise SettingsError: the URL is malformed, or neither secure nor local.
    """
    try:
        parts = urlsplit(text.strip())
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise SettingsError(f"{setting}: the URL is malformed: {error}") from None
    scheme = parts.scheme.lower()
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise SettingsError(f"{setting}: the URL must not contain a user, a password or a fragment")
    shown = parts.geturl()
    if scheme == "file":
        if host not in ("", "localhost") or not parts.path.startswith("/") or parts.query:
            raise SettingsError(f"{setting}={shown}: expected file:// and an absolute path, such as file:///etc/keys.json")
        return EndpointUrl(shown, unquote(parts.path))
    if scheme not in ("http", "https") or not host:
        raise SettingsError(f"{setting}={shown}: expected a URL with https:// or file://")
    if scheme == "http" and not _is_loopback(host):
        raise SettingsError(
            f"{setting}={shown}: without TLS, other hosts on the network could read secrets and replace keys: use "
            "https:// (http:// is allowed for this machine only)"
        )
    return EndpointUrl(shown)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
