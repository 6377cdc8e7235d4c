"""When a broker reports that it is ready, it knows all topics."""

from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.standalone import StandaloneProcess

TOPICS = [NewTopic(f"t{i}", 10, 1) for i in range(20)]


def test_all_topics_are_known_at_the_ready_message(tmp_path):
    """After a kill while topics are created, the restarted broker lists all existing ones as soon as it is ready."""
    process = StandaloneProcess(tmp_path).start()
    try:
        admin = AdminClient({"bootstrap.servers": process.bootstrap_servers, "log_level": 0})
        futures = admin.create_topics(TOPICS)
        futures["t0"].result(20)
        process.kill()
        del admin, futures  # so that this client does not retry
        process.start()
        admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
        listed = set(admin.list_topics(timeout=10).topics)
        futures = admin.create_topics(TOPICS, request_timeout=20)
        existed = {name for name, future in futures.items() if future.exception(20) is not None}
        assert existed == listed
        assert "t0" in listed
    finally:
        process.kill()


def test_startup_log_has_no_warning_and_no_library_message(tmp_path):
    """No slow import is reported: the web framework is imported before any client is connected."""
    process = StandaloneProcess(tmp_path).start()
    try:
        startup = process.all_output.partition("is ready")[0]
    finally:
        process.kill()
    assert "Starting factory" not in startup
    assert " warn " not in startup
