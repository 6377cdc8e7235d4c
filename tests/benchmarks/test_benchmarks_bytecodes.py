"""What is counted is the product's own work, room by room, and the same each time."""

from benchmarks import bytecodes
from benchmarks.bytecodes import HOME, Leader, room_of
from kreplica.wire.messages import PRODUCE


def test_rooms():
    """Generated code is the wire's; what others wrote is nobody's."""
    assert room_of(f"{HOME}/storage/log.py") == "storage"
    assert room_of(f"{HOME}/server/handlers/produce.py") == "server"
    assert room_of("<parser of <Record +nonbuild>>") == "wire"
    assert room_of("/usr/lib/python3.11/heapq.py") is None


def test_a_produce_is_counted():
    """With what it passes through, without the simulator, and with the same numbers again."""
    leader = Leader(1)
    counted, calls, rounds = bytecodes._counted(leader, PRODUCE, 9, bytecodes._produce(1), 20)
    again, _, _ = bytecodes._counted(leader, PRODUCE, 9, bytecodes._produce(1), 20)
    assert rounds == 20
    assert {"server", "wire", "storage", "replication"} <= counted.keys()
    assert "testing" not in counted
    assert counted["server"] == again["server"]
    assert all(counted[room] > calls[room] > 0 for room in counted)
