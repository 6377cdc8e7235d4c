"""The client package has all its names, and brings only those that are asked for."""

import subprocess
import sys

import kreplica.client


def test_all_names():
    """What the package says that it has can be had, and is listed."""
    assert set(kreplica.client.__all__) <= set(dir(kreplica.client))
    for name in kreplica.client.__all__:
        assert getattr(kreplica.client, name) is not None


def test_connection_alone():
    """Who needs a connection, as brokers do, does not import consumers, producers and all that can be administered."""
    script = (
        "import sys, kreplica.client.connection\n"
        "parts = ('admin', 'consumer', 'group', 'producer')\n"
        "print([each for each in parts if f'kreplica.client.{each}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
