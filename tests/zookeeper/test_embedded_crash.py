"""``kill -9`` of a real coordinator process during pipelined writes loses no acknowledged write."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from blocking_client import BlockingClient

from kreplica.zookeeper.records import Opcode, request_frame
from kreplica.zookeeper.requests import Create, Exists, GetData, Multi, SetData
from kreplica.zookeeper.responses import decode_data
from tests.support.coordinator import CoordinatorProcess

REQUEST_COUNT = 4_000
ZNODE_COUNT = 20


def read(client: BlockingClient, path: str) -> int:
    """Return the number stored in a znode."""
    body = client.call(GetData(path))
    return int(decode_data(body, 0, len(body))[0])


def write_requests(first: int) -> list[bytes]:
    """Return requests that write increasing numbers: sets of one znode, and multis that set a pair of znodes."""
    requests = []
    for number in range(first, first + REQUEST_COUNT):
        data = b"%d" % number
        if number % 3:
            request, opcode = SetData(f"/single-{number % ZNODE_COUNT}", data).encode(), Opcode.SET_DATA
        else:
            pair = number % ZNODE_COUNT
            request = Multi([SetData(f"/left-{pair}", data), SetData(f"/right-{pair}", data)]).encode()
            opcode = Opcode.MULTI
        requests.append(request_frame(number, opcode, request))
    return requests


def send_all_and_kill(coordinator: CoordinatorProcess, client: BlockingClient, first: int, kill_after: int) -> int:
    """Send requests, kill the process after ``kill_after`` responses, and return the last acknowledged number."""
    client.send(b"".join(write_requests(first)))
    last_acknowledged = first - 1
    try:
        for expected in range(first, first + REQUEST_COUNT):
            reply = client.reply()
            assert (reply.xid, reply.error) == (expected, 0)
            last_acknowledged = expected
            if expected - first == kill_after:
                coordinator.kill()
    except OSError:
        pass
    client.close()
    return last_acknowledged


@pytest.mark.parametrize(
    ("seed", "kill_count"), [(1, 6), *(pytest.param(seed, 50, marks=pytest.mark.soak) for seed in range(2, 6))]
)
def test_killed_coordinator_loses_no_acknowledged_write(tmp_path: Path, seed: int, kill_count: int) -> None:
    """Each znode contains at least its last acknowledged number, and the znodes of a pair are equal."""
    random = Random(seed)
    with CoordinatorProcess(tmp_path) as coordinator:
        client = BlockingClient(coordinator.port)
        session = client.session
        names = [f"/{kind}-{number}" for kind in ("single", "left", "right") for number in range(ZNODE_COUNT)]
        client.call(Multi([Create(name, b"0") for name in names]))
        client.call(Create("/mine", ephemeral=True))
        acknowledged = dict.fromkeys(names, 0)
        for round_ in range(kill_count):
            first = round_ * REQUEST_COUNT + 1
            last = send_all_and_kill(coordinator, client, first, random.randrange(REQUEST_COUNT // 2))
            for number in range(first, last + 1):
                kinds = ("single",) if number % 3 else ("left", "right")
                acknowledged.update({f"/{kind}-{number % ZNODE_COUNT}": number for kind in kinds})
            coordinator.start()
            client = BlockingClient(coordinator.port, session)
            found = {name: read(client, name) for name in names}
            assert not {name: number for name, number in found.items() if number < acknowledged[name]}
            assert [found[f"/left-{n}"] for n in range(ZNODE_COUNT)] == [
                found[f"/right-{n}"] for n in range(ZNODE_COUNT)
            ]
            # Unacknowledged requests may have been applied, but only in the order in which they were sent.
            assert max(found.values()) >= last
            assert client.session == session
        client.call(Exists("/mine"))
        client.close()
