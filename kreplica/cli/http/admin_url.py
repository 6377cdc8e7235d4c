"""The URL of an admin API."""

from __future__ import annotations

from urllib.parse import urlsplit


def parse_admin_url(text: str) -> str:
    """Return the URL without a path; the scheme of ``HOST:PORT`` is ``http``.

    :raise ValueError: it is not the URL of an admin API.
    """
    parts = urlsplit(text if "//" in text else f"http://{text}")
    try:
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and parts.path in ("", "/")
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment:
        raise ValueError(f"{text!r}: expected http://HOST:PORT or https://HOST:PORT")
    return f"{parts.scheme}://{parts.netloc}"
