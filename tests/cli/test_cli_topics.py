"""Commands for topics, partitions, brokers, settings and elections: requests and output."""

from __future__ import annotations

import json
import time

import pytest

PARTITION = {"topic": "orders", "partition": 3, "leader": 1, "leader_epoch": 7, "replicas": [1, 2], "isr": [1, 2],
             "offline_replicas": [], "adding": [], "removing": [], "read_only": False}  # fmt: skip
TOPIC = {"name": "orders", "topic_id": "x", "partitions": 6, "replication_factor": 3, "is_internal": False,
         "offline_partitions": 0, "under_replicated_partitions": 0, "deleting": False}  # fmt: skip
ZNODES = [{"operation": "create", "path": "/brokers/topics/orders", "data": {"version": 3}}]


def config(name, value, *, default="1", sensitive=False):
    return {"name": name, "value": value, "default_value": default, "is_default": value == default,
            "source": "dynamic_topic_config", "type": "long", "documentation": "", "read_only": False,
            "sensitive": sensitive}  # fmt: skip


def test_topics_are_listed(admin, kreplica):
    """A row shows the size, load, retention and health of a topic; an unknown value is shown as a dash."""
    load = {"records": 1200, "size_bytes": 2048, "bytes_in_rate": 1536.0, "bytes_out_rate": 0,
            "retention_ms": 604_800_000, "cleanup_policy": "delete", "groups": 2}  # fmt: skip
    healthy = {**TOPIC, **load, "health": "healthy"}
    sick = {**healthy, "name": "audit", "records": None, "retention_ms": -1, "health": "under_min_isr"}
    admin.answers["GET /v1/topics"] = {"topics": [sick, healthy], "next": None, "total": 2, "problems": []}
    lines = kreplica("topic", "list", "--search", "o").stdout.splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "SIZE", "IN", "OUT", "RETENTION",
                                "CLEANUP", "GROUPS", "HEALTH"]  # fmt: skip
    assert lines[1].split("  ")[-1] == "under min.insync.replicas"
    assert lines[1].split()[3] == "-"
    assert " ".join(lines[2].split()) == "orders 6 3 1200 2.0 KiB 1.5 KiB/s 0 B/s 7 d delete 2 healthy"
    query = admin.last.query
    assert (query["limit"], query["search"], query["internal"]) == ("10000", "o", "false")
    assert query["fields"].startswith("name,partitions,replication_factor,records,size_bytes")


def test_no_topics(admin, kreplica):
    """An empty list is printed as a sentence."""
    admin.answers["GET /v1/topics"] = {"topics": [], "next": None}
    assert kreplica("topic", "list").stdout == "No topics match.\n"


def test_topic_is_described(admin, kreplica):
    """The output shows the replicas of each partition, and the topic's own settings."""
    admin.answers["GET /v1/topics/orders"] = {**TOPIC, "configs": [config("a", "1"), config("retention.ms", "5")]}
    odd = {**PARTITION, "leader": None, "isr": [2], "offline_replicas": [1], "adding": [3], "read_only": True}
    admin.answers["GET /v1/topics/orders/partitions"] = {"partitions": [odd], "next": None}
    shown = kreplica("topic", "show", "orders").stdout
    assert "settings    retention.ms=5\n" in shown
    assert shown.splitlines()[-1].split(maxsplit=5) == [
        "3", "none", "7", "1,2", "2", "offline on 1; being added to 3; read-only",
    ]  # fmt: skip


def test_topic_is_created(admin, kreplica):
    """Only the given options are sent, so that the broker's defaults apply."""
    made = {"name": "orders", "topic_id": "x", "partitions": 6, "replication_factor": 3, "assignment": {}, "led": True,
            "dry_run": False, "znodes": ZNODES}  # fmt: skip
    admin.answers["POST /v1/topics"] = made
    done = kreplica("topic", "create", "orders", "--partitions", "6", "--config", "retention.ms=5")
    assert done.stdout == "Created topic orders with 6 partitions of 3 replicas.\n"
    assert admin.last.body == {"name": "orders", "partitions": 6, "configs": {"retention.ms": "5"}}
    assert admin.last.query == {"dry_run": "false"}
    admin.answers["POST /v1/topics"] = {**made, "led": False}
    assert "Some partitions have no leader yet" in kreplica("topic", "create", "orders").stdout
    kreplica("topic", "create", "orders", "--assign", "0=1,2", "--assign", "1=2,1")
    assert admin.last.body == {"name": "orders", "assignment": {"0": [1, 2], "1": [2, 1]}}


def test_dry_run_shows_the_znodes(admin, kreplica):
    """A dry run prints the paths and data of the znodes."""
    admin.answers["POST /v1/topics"] = {"name": "orders", "dry_run": True, "znodes": ZNODES}
    done = kreplica("topic", "create", "orders", "--dry-run")
    assert admin.last.query == {"dry_run": "true"}
    assert done.stdout.splitlines() == [
        "Nothing was changed (--dry-run).  Writes to ZooKeeper:",
        '  create /brokers/topics/orders  {"version": 3}',
    ]


def test_topic_is_deleted_after_confirmation(admin, kreplica):
    """A topic is deleted only after a confirmation, or with --yes."""
    admin.answers["DELETE /v1/topics/orders"] = {"name": "orders", "deleted": True, "dry_run": False, "znodes": []}
    done = kreplica("topic", "delete", "orders", answer="n\n")
    assert done.exit_code == 1
    assert "Delete topic orders and all its records?" in done.stderr
    assert not admin.requests
    assert "--json requires --yes" in kreplica("topic", "delete", "orders", "--json").stderr
    assert not admin.requests
    assert kreplica("topic", "delete", "orders", "--yes").stdout == "Topic orders was deleted.\n"
    assert kreplica("topic", "delete", "orders", answer="y\n").stdout == "Topic orders was deleted.\n"


DELETED = {"topic": "orders", "partitions": [{"partition": 0, "before": 5, "after": 12},
                                             {"partition": 1, "before": 3, "after": 3}], "znodes": []}  # fmt: skip


def test_records_are_deleted_after_confirmation(admin, kreplica):
    """The output shows the log start offsets before and after; a dry run needs no confirmation."""
    admin.answers["DELETE /v1/topics/orders/messages"] = {**DELETED, "dry_run": True}
    shown = kreplica("topic", "delete-records", "orders", "--all", "--dry-run").stdout.splitlines()
    assert [line.split() for line in shown[1:3]] == [["0", "5", "12", "7"], ["1", "3", "3", "0"]]
    assert shown[-1] == "Nothing was changed (--dry-run): 7 offsets would be deleted from orders."
    assert admin.last.query == {"before": "latest", "dry_run": "true"}
    admin.answers["DELETE /v1/topics/orders/messages"] = {**DELETED, "dry_run": False}
    admin.requests.clear()
    refused = kreplica("topic", "delete-records", "orders", "--all", answer="n\n")
    assert "Delete records of topic orders?" in refused.stderr
    assert not admin.requests
    done = kreplica("topic", "delete-records", "orders", "--offset", "12", "-p", "0", "--yes")
    assert done.stdout.splitlines()[-1] == "Deleted 7 offsets from orders."
    assert admin.last.query == {"before": "offset:12", "partition": "0", "dry_run": "false"}
    kreplica("topic", "delete-records", "orders", "--time", "1700000000000", "--yes")
    assert admin.last.query["before"] == "timestamp:1700000000000"
    kreplica("topic", "delete-records", "orders", "--older-than", "1h", "--yes")
    kind, _, time_ms = admin.last.query["before"].partition(":")
    assert (kind, abs(time.time() - 3600 - int(time_ms) / 1000) < 60) == ("timestamp", True)


@pytest.mark.parametrize("words", [(), ("--all", "--offset", "1")])
def test_exactly_one_position_is_required(admin, kreplica, words):
    done = kreplica("topic", "delete-records", "orders", *words)
    assert done.exit_code == 2
    assert "specify exactly one of --all, --time, --older-than, --offset" in done.stderr


def test_partitions_are_added(admin, kreplica):
    """The argument is the total number of partitions."""
    grown_topic = {"name": "orders", "partitions": 8, "assignment": {}, "led": True, "dry_run": False, "znodes": []}
    admin.answers["PATCH /v1/topics/orders"] = grown_topic
    assert kreplica("topic", "grow", "orders", "8").stdout == "Topic orders now has 8 partitions.\n"
    assert admin.last.body == {"partitions": 8}


def test_topic_settings(admin, kreplica):
    """The output shows the topic's own settings or the requested ones; secrets are hidden."""
    rows = [config("a", "1"), config("b", "2"), config("c", None, sensitive=True)]
    admin.answers["GET /v1/configs/topics/orders"] = {"configs": rows}

    def shown_settings(*words):
        lines = kreplica("topic", "config", "get", "orders", *words).stdout.splitlines()
        return [line.split()[:2] for line in lines if not line.startswith("SETTING")]

    assert shown_settings() == [["b", "2"], ["c", "(hidden)"]]
    assert shown_settings("a") == [["a", "1"]]
    assert shown_settings("--all") == [["a", "1"], ["b", "2"], ["c", "(hidden)"]]
    assert shown_settings("a", "nonsense") == [["Unknown", "setting:"], ["a", "1"]]
    admin.answers["PATCH /v1/configs/topics/orders"] = {"configs": rows, "dry_run": False, "znodes": []}
    done = kreplica("topic", "config", "set", "orders", "a=1", "b=x=y")
    assert admin.last.body == {"set": {"a": "1", "b": "x=y"}, "remove": []}
    assert done.stdout == "topic orders: a=1\ntopic orders: b=x=y\n"
    done = kreplica("topic", "config", "remove", "orders", "a")
    assert admin.last.body == {"set": {}, "remove": ["a"]}
    assert done.stdout == "topic orders: a was reset to its default\n"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("retention.ms=2d", "172800000"),
        ("retention.ms=-1", "-1"),
        ("segment.bytes=256MiB", "268435456"),
        ("retention.bytes=1GB", "1000000000"),
        ("cleanup.policy=compact", "compact"),
    ],
)
def test_values_with_units(admin, kreplica, given, sent):
    """Values with units are converted to the unit of the setting."""
    admin.answers["PATCH /v1/configs/topics/orders"] = {"configs": [], "dry_run": False, "znodes": []}
    assert kreplica("topic", "config", "set", "orders", given).exit_code == 0
    assert admin.last.body == {"set": {given.partition("=")[0]: sent}, "remove": []}


def test_unknown_units(kreplica):
    for setting in ("retention.ms=2 fortnights", "segment.bytes=2elephants"):
        done = kreplica("topic", "config", "set", "orders", setting)
        assert done.exit_code == 2
        assert "expected a" in done.stderr


def test_broker_settings(admin, kreplica):
    """Settings of one broker, or the defaults of all brokers, can be shown and changed."""
    admin.answers["PATCH /v1/configs/brokers/default"] = {"configs": [], "dry_run": False, "znodes": []}
    done = kreplica("config", "set", "broker", "default", "log.retention.ms=5")
    assert done.stdout == "broker default: log.retention.ms=5\n"
    admin.answers["GET /v1/configs/brokers/2"] = {"configs": []}
    assert kreplica("config", "get", "broker", "2").stdout == "All settings have their default values (see --all).\n"


def test_partitions_with_problems(admin, kreplica):
    """The requested state is sent as a filter, and each row names the problem."""
    admin.answers["GET /v1/partitions"] = {"partitions": [{**PARTITION, "isr": [1]}], "next": None}
    shown = kreplica("partition", "list", "--under-replicated").stdout
    assert admin.last.query == {"limit": "10000", "state": "under_replicated"}
    assert shown.splitlines()[1].split() == ["orders", "3", "1", "7", "1,2", "1"]
    kreplica("partition", "list")
    assert "state" not in admin.last.query


def test_one_partition(admin, kreplica):
    """Unknown values are omitted."""
    document = {**PARTITION, "controller_epoch": 2, "partition_epoch": 9, "written_at_ms": 1_790_000_000_000,
                "eligible_leader_replicas": [], "start_offset": 5, "end_offset": 90, "size_bytes": 2048}  # fmt: skip
    admin.answers["GET /v1/topics/orders/partitions/3"] = document
    shown = kreplica("partition", "show", "orders:3").stdout
    assert "offsets            from 5 to 90\n" in shown
    assert "size               2.0 KiB\n" in shown
    assert "eligible" not in shown


BROKER = {"broker_id": 2, "live": True, "rack": "r1", "endpoints": ["PLAINTEXT://h:9092"], "broker_epoch": 34,
          "registered_at_ms": 1_790_000_000_000, "admin_url": "http://h:8080", "is_controller": True,
          "cordoned": True, "leaders": 3, "replicas": 6, "under_replicated_leaders": 1}  # fmt: skip


def test_brokers(admin, kreplica):
    """The output shows live, cordoned and missing brokers, and the controller."""
    dead = {**BROKER, "broker_id": 3, "live": False, "endpoints": [], "admin_url": None, "is_controller": False,
            "cordoned": False}  # fmt: skip
    rows = [{**each, "faults": []} for each in (BROKER, dead)]
    admin.answers["GET /v1/brokers"] = {"brokers": rows}
    lines = kreplica("broker", "list").stdout.splitlines()
    assert "live, controller, cordoned" in lines[1]
    assert "DEAD" in lines[2]
    disk = {"path": "/d", "error": "KAFKA_STORAGE_ERROR", "total_bytes": None, "usable_bytes": 1 << 30,
            "size_bytes": 10, "partitions": 6}  # fmt: skip
    admin.answers["GET /v1/brokers/2"] = {**BROKER, "log_dirs": [disk]}
    shown = kreplica("broker", "show", "2").stdout
    assert shown.splitlines()[-1].split() == ["/d", "6", "10", "B", "1.0", "GiB", "-", "KAFKA_STORAGE_ERROR"]
    admin.answers["GET /v1/brokers/2"] = {**BROKER, "log_dirs": None}
    assert "The broker reported no log directories." in kreplica("broker", "show", "2").stdout


def test_broker_is_cordoned_and_uncordoned(admin, kreplica):
    answer = {"broker_id": 2, "cordoned": True, "dry_run": False, "znodes": []}
    admin.answers["PUT /v1/brokers/2/cordon"] = admin.answers["DELETE /v1/brokers/2/cordon"] = answer
    cordoned = kreplica("broker", "cordon", "2", "--reason", "disks").stdout
    assert cordoned == "Broker 2 is cordoned: no new replicas are placed on it.\n"
    assert admin.last.body == {"reason": "disks"}
    assert kreplica("broker", "uncordon", "2").exit_code == 0
    assert admin.last.method == "DELETE"


def test_elections(admin, kreplica):
    """The output shows the result for each partition; a failure sets the exit status."""
    fine = {"topic": "orders", "partition": 0, "leader": 1, "error": None}
    admin.answers["POST /v1/elections"] = {"type": "preferred", "partitions": [fine], "dry_run": False, "znodes": []}
    assert kreplica("election", "preferred").exit_code == 0
    assert admin.last.body == {"type": "preferred", "partitions": None}
    failed = {**fine, "leader": None, "error": "ELIGIBLE_LEADERS_NOT_AVAILABLE"}
    admin.answers["POST /v1/elections"] = {"type": "unclean", "partitions": [failed], "dry_run": False, "znodes": []}
    done = kreplica("election", "unclean", "orders:0", answer="y\n")
    assert "Records that exist only on dead brokers will be lost." in done.stderr
    assert admin.last.body == {"type": "unclean", "partitions": [{"topic": "orders", "partition": 0}]}
    assert "ELIGIBLE_LEADERS_NOT_AVAILABLE" in done.stdout
    assert done.exit_code == 1


def test_advice_is_shown_as_commands(admin, kreplica):
    """Requests in the admin API's advice are shown as commands."""
    problem = {"title": "X", "status": 404, "detail": "none", "what_to_do": "GET /v1/topics lists what there is."}
    admin.answers["GET /v1/topics/x"] = 404, problem
    assert "`kreplica topic list` lists what there is." in kreplica("topic", "show", "x").stderr


def test_special_characters_in_names_are_escaped(admin, kreplica):
    """Special characters in a name are escaped, so that the name is one path segment."""
    kreplica("topic", "show", "a/../b?c")
    assert admin.last.path == "/v1/topics/a%2F..%2Fb%3Fc"


def test_json_of_a_topic_is_its_document(admin, kreplica):
    """The JSON of a topic is the admin API's document, without the partitions."""
    document = {**TOPIC, "configs": []}
    admin.answers["GET /v1/topics/orders"] = document
    assert json.loads(kreplica("topic", "show", "orders", "--json").stdout) == document


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["topic", "create", "t", "--config", "x"], "'x': expected NAME=VALUE"),
        (["topic", "create", "t", "--assign", "0:1"], "'0:1': expected PARTITION=BROKERS"),
        (["topic", "create", "t", "--assign", "0=1", "--partitions", "2"], "--assign cannot be combined"),
        (["topic", "grow", "t", "0"], "0 is not in the range x>=1"),
        (["partition", "show", "orders"], "'orders': expected TOPIC:PARTITION"),
        (["partition", "list", "--topic", "t", "--offline"], "--topic cannot be combined"),
        (["config", "get", "broker", "x"], "'x' is not a broker"),
        (["election", "unclean"], "specify partitions"),
        (["broker", "cordon", "x"], "'x' is not a valid integer"),
    ],
)
def test_invalid_arguments(kreplica, admin, words, message):
    """Invalid arguments are usage errors, and no request is sent."""
    done = kreplica(*words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not admin.requests
