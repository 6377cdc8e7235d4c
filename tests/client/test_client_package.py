"""The client package exports all its names, and imports modules on first use."""

import subprocess
import sys

import kreplica.client


def test_exported_names():
    """All exported names exist, and ``dir`` lists them."""
    assert set(kreplica.client.__all__) <= set(dir(kreplica.client))
    for name in kreplica.client.__all__:
        assert getattr(kreplica.client, name) is not None


def test_connection_imports_no_client():
    """Importing the connection module does not import consumers, producers or the admin client."""
    script = (
        "import sys, kreplica.client.connection\n"
        "parts = ('admin', 'consumer', 'group', 'producer')\n"
        "print([each for each in parts if f'kreplica.client.{each}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
