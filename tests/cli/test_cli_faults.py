"""``kreplica cluster`` and ``kreplica broker`` show faults, the commands that explain them, and unknown data."""

from __future__ import annotations

from test_cli_session import CLUSTER, FIGURES

FULL = {
    "kind": "full_disk",
    "severity": "bad",
    "subject": "broker 2",
    "text": "Broker 2: the disk of log directory /data is full: appends are rejected.",
    "count": 3,
    "examples": ["orders-0"],
    "why": "/v1/why/brokers/2",
}
NONE = {**FULL, "kind": "no_controller", "subject": "cluster", "text": "No broker is the controller.", "why": None}
HEALTH = {"state": "bad", "summary": "", "figures": {}, "faults": [FULL, NONE], "problems": ["Broker 3: unknown."]}
ROW = {
    "broker_id": 2, "live": True, "rack": None, "endpoints": [], "broker_epoch": 4, "registered_at_ms": 1,
    "admin_url": None, "is_controller": False, "cordoned": False, "leaders": 1, "replicas": 3,
    "under_replicated_leaders": 0, "faults": [FULL],
}  # fmt: skip


def test_faults_of_the_cluster(admin, kreplica):
    admin.answers |= {"GET /v1/cluster": {**CLUSTER, "health": HEALTH}, "GET /v1/live-metrics": FIGURES}
    lines = kreplica("cluster").stdout.splitlines()
    start = lines.index("Faults")
    assert lines[start + 1 :] == [
        f"  {FULL['text']}",
        "    kreplica why broker 2",
        "  No broker is the controller.",
        "",
        "Unknown",
        "  Broker 3: unknown.",
    ]


def test_cluster_without_zookeeper(admin, kreplica):
    cluster = {**CLUSTER, "zookeeper": {"connect": "z:2181", "session": "suspended"}}
    admin.answers |= {"GET /v1/cluster": cluster, "GET /v1/live-metrics": FIGURES}
    assert "z:2181 (session suspended: showing the last known data)" in kreplica("cluster").stdout


def test_faults_in_the_list_of_brokers(admin, kreplica):
    """The list shows the number of faults per broker, followed by the faults."""
    healthy = {**ROW, "broker_id": 1, "faults": []}
    admin.answers["GET /v1/brokers"] = {"brokers": [healthy, ROW], "next": None, "total": 2, "problems": []}
    lines = kreplica("broker", "list", "--fields", "broker_id,state,faults").stdout.splitlines()
    assert [line.split()[::2] for line in lines[:3]] == [["BROKER", "FAULTS"], ["1", "0"], ["2", "1"]]
    assert lines[3:] == ["", "Faults", f"  {FULL['text']}", "    kreplica why broker 2"]
    assert admin.last.query["fields"] == "broker_id,live,is_controller,cordoned,faults"


def test_faults_of_a_broker(admin, kreplica):
    problem = "ZooKeeper does not respond: the brokers and their addresses are the last known ones."
    admin.answers["GET /v1/brokers/2"] = {**ROW, "log_dirs": [], "problems": [problem]}
    out = kreplica("broker", "show", "2").stdout
    assert f"Faults\n  {FULL['text']}\n    kreplica why broker 2\n\nUnknown\n  {problem}\n" in out
