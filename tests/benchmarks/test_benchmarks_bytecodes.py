"""Tests that the bytecode benchmark counts only kreplica's code, deterministically."""

from benchmarks import bytecodes
from benchmarks.bytecodes import HOME, Leader, package_of
from kreplica.wire.messages import PRODUCE


def test_package_of():
    """Generated code belongs to ``wire``; code outside of kreplica belongs to no package."""
    assert package_of(f"{HOME}/storage/log.py") == "storage"
    assert package_of(f"{HOME}/server/handlers/produce.py") == "server"
    assert package_of("<parser of <Record +nonbuild>>") == "wire"
    assert package_of("/usr/lib/python3.11/heapq.py") is None


def test_a_produce_is_counted():
    """The packages that handle the request are counted, but not the simulator; a second run counts the same."""
    leader = Leader(1)
    counted, calls, rounds = bytecodes._counted(leader, PRODUCE, 9, bytecodes._produce(1), 20)
    again, _, _ = bytecodes._counted(leader, PRODUCE, 9, bytecodes._produce(1), 20)
    assert rounds == 20
    assert {"server", "wire", "storage", "replication"} <= counted.keys()
    assert "testing" not in counted
    assert counted["server"] == again["server"]
    assert all(counted[package] > calls[package] > 0 for package in counted)
