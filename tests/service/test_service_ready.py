"""A broker that reports readiness knows all topics."""

from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.standalone import StandaloneProcess

TOPICS = [NewTopic(f"t{i}", 10, 1) for i in range(20)]


def test_all_topics_are_known_at_the_ready_message(tmp_path):
    """After a kill during the creation of many topics, each created one is listed at once after the restart."""
    process = StandaloneProcess(tmp_path).start()
    try:
        admin = AdminClient({"bootstrap.servers": process.bootstrap_servers, "log_level": 0})
        made = admin.create_topics(TOPICS)
        made["t0"].result(20)
        process.kill()
        del admin, made  # so that this client sends nothing again
        process.start()
        fresh = AdminClient({"bootstrap.servers": process.bootstrap_servers})
        listed = set(fresh.list_topics(timeout=10).topics)
        again = fresh.create_topics(TOPICS, request_timeout=20)
        existed = {name for name, future in again.items() if future.exception(20) is not None}
        assert existed == listed
        assert "t0" in listed
    finally:
        process.kill()


def test_startup_log_has_no_warning_and_no_message_of_a_library(tmp_path):
    """The import of the web framework blocks the event loop, but before any client is connected."""
    process = StandaloneProcess(tmp_path).start()
    try:
        startup = process.all_output.partition("is ready")[0]
    finally:
        process.kill()
    assert "Starting factory" not in startup
    assert " warn " not in startup
