#!/opt/kreplica/bin/python
"""Health check of the container image: exits with 0 if the broker serves clients; otherwise prints why, exits with 1.

It sends a request to the admin API at ``KREPLICA_ADMIN``, by default ``http://127.0.0.1:8080``. Health checks require
no authentication. For an address with https, ``KREPLICA_CA_FILE`` contains the certificate authority.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 4.0


def check(admin_url: str, ca_file: str | None) -> str:
    """Return the reason why the broker does not serve clients, or an empty string if it does."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if admin_url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)))
    try:
        with urllib.request.build_opener(*handlers).open(f"{admin_url}/health/ready", timeout=TIMEOUT_S):
            return ""
    except urllib.error.HTTPError as error:
        try:
            reasons = json.loads(error.read())["reasons"]
        except (ValueError, LookupError, TypeError):
            return f"{admin_url} responded with status {error.code}"
        return "; ".join(reasons)
    except (OSError, ValueError) as error:
        return f"no response from {admin_url}: {error}"


def main() -> None:
    admin_url = os.environ.get("KREPLICA_ADMIN", "http://127.0.0.1:8080").rstrip("/")
    reason = check(admin_url, os.environ.get("KREPLICA_CA_FILE"))
    print(reason or "ready")
    sys.exit(1 if reason else 0)


if __name__ == "__main__":
    main()
