"""Valid topic names, as in Kafka."""

import pytest

from kreplica.cluster.topic_names import check_collision, check_topic_name
from kreplica.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
def test_valid_names(name):
    """Letters, digits, dot, underscore and dash are valid, up to 249 characters."""
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n"])
def test_invalid_names(name):
    """Other names are rejected with a reason."""
    with pytest.raises(KafkaError) as caught:
        check_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert caught.value.message


def test_colliding_names():
    """Names that differ only in dots and underscores collide."""
    check_collision("a.b", ["a.b", "ab", "a-b"])
    check_collision("ab", ["a.b"])
    with pytest.raises(KafkaError, match=r"a\.b"):
        check_collision("a_b", ["a.b"])
