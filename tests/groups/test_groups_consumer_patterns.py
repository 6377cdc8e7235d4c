"""Regular expressions in subscriptions: RE2 syntax, full matches, linear time."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer.state import MatchedTopics
from kreplica.groups.consumer.topic_lookup import EXPRESSIONS_MAX, TopicLookup
from kreplica.patterns import Automaton, PatternError
from kreplica.patterns.automaton import CACHED_TRANSITIONS_MAX, NFA_STATES_MAX
from kreplica.testing.simulator.simulation import Simulation

# fmt: off
EXPRESSIONS = [
    ("foo", ["foo"], ["", "fo", "fooo", "xfoo"]),
    ("foo.*", ["foo", "foobar"], ["xfoo"]),
    ("^foo.*|^bar$", ["foo1", "bar"], ["bar1", "xbar"]),
    ("", [""], ["a"]),
    ("a|", ["a", ""], ["b"]),
    ("a+b?c*", ["a", "aab", "abcc"], ["", "b", "abb"]),
    ("a+?b*?c??", ["a", "aab", "abc"], ["", "b", "acc"]),
    ("a{2}", ["aa"], ["a", "aaa"]),
    ("a{2,}", ["aa", "aaaa"], ["a"]),
    ("a{1,2}b", ["ab", "aab"], ["b", "aaab"]),
    ("a{0}b", ["b"], ["ab"]),
    ("(?:a|b){2}", ["ab", "ba"], ["a", "aba"]),
    ("(?P<name>x)(?<other>y)", ["xy"], ["x"]),
    ("(a*)*b", ["b", "aab"], ["aa"]),
    ("(a|ab)(c|bcd)", ["ac", "abcd", "abc"], ["ab"]),
    ("[a-c\\d]+", ["a1", "3b"], ["d", ""]),
    ("[^a-c]", ["d", "."], ["a", ""]),
    ("[]a]", ["a"], ["b"]),
    ("[^]a]", ["b"], ["a"]),
    ("[a-]+", ["a-"], ["b"]),
    ("[\\w.-]+", ["a_1.b-c"], [""]),
    ("[[:alpha:][:digit:]]+", ["a1"], ["_"]),
    ("[[:^alpha:]]", ["1"], ["a"]),
    ("\\d\\D\\w\\W", ["1a_."], ["aa_."]),
    ("\\s|a", ["a"], [""]),
    ("a\\.b\\-c", ["a.b-c"], ["axb-c"]),
    ("\\Qa.b\\E+", ["a.b", "a.bbb"], ["axb"]),
    ("\\Qa.", ["a."], ["ab"]),
    ("\\x61\\x{62}\\143\\0?", ["abc"], ["ab"]),
    ("\\p{Lu}\\pN\\PL", ["A1."], ["a1."]),
    ("\\p{^L}\\P{^L}", ["1a"], ["aa"]),
    ("(?i)Ab[c-d]", ["aBC", "ABd"], ["abe"]),
    ("a(?i)b|c(?-i)d", ["aB", "Cd"], ["AB", "CD"]),
    ("(?i:a)b", ["Ab"], ["AB"]),
    ("(?ms)a.b", ["axb"], ["ab"]),
    ("\\Aa\\z", ["a"], ["b"]),
    ("a\\b.*", ["a", "a.b"], ["ab", "a_"]),
    ("a\\B.*", ["ab"], ["a", "a.b"]),
    ("a^b|a$b", [], ["ab"]),
    ("a{,2}|a{", ["a{,2}"], ["aa"]),
    ("größe|a", ["a", "größe"], ["gr"]),
    (".[^ß]", ["öé", "aé"], ["öß", "\né", "é"]),
    ("(?s).a", ["\na"], ["\n"]),
    ("(?s:.)a.", ["\nab"], ["\na\n"]),
    ("(?i)É[а-я]", ["éЯ", "Éя"], ["eя"]),
    ("(?i)[^é]", ["e"], ["É", "é"]),
    ("[\\D\\d]", ["x", "1", "é"], [""]),
    ("[\\D\\W]", ["x", "."], ["1"]),
    ("[^\\D]", ["1"], ["x", "é"]),
    ("[^\\D\\S]", [], ["1", " ", "x"]),
    ("[[:^space:]1]", ["x", "1", "é"], [" "]),
    ("[[:punct:]]\\s", ["!\t", "{ "], ["x ", "!"]),
]
# fmt: on


@pytest.mark.parametrize(("expression", "matching", "non_matching"), EXPRESSIONS, ids=[each[0] for each in EXPRESSIONS])
def test_expressions_match_whole_names(expression: str, matching: list[str], non_matching: list[str]) -> None:
    automaton = Automaton(expression)
    assert [each for each in matching if not automaton.matches(each)] == []
    assert [each for each in non_matching if automaton.matches(each)] == []


@pytest.mark.parametrize(
    "expression",
    [
        "(", ")", "(a", "a)", "[a", "[", "[^", "[a-", "*a", "a|*", "+", "{2}", "a**", "a*+", "a{2}{3}", "a{2,1}",
        "a{1001}", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?", "(?x)a", "(a)\\1", "\\Z", "\\", "[\\", "\\xg",
        "\\x{110000}", "[b-a]", "[a-\\d]", "[[:foo:]]", "\\p{Greek}", "\\pX", "(?P<>a)",
    ],
)  # fmt: skip
def test_expressions_outside_of_re2_are_refused(expression: str) -> None:
    """Malformed expressions and unsupported features are errors with a reason."""
    with pytest.raises(PatternError, match="at character"):
        Automaton(expression)


@pytest.mark.parametrize(
    "expression", ["((a{100}){100}){100}", "((){1000}){1000}" * 3 + "a{900}" * 3, "(" * 101 + "a" + ")" * 101]
)
def test_large_expressions_are_refused(expression: str) -> None:
    """Repetitions and nesting are limited."""
    with pytest.raises(PatternError):
        Automaton(expression)


def test_random_expressions_match_like_re() -> None:
    rng = random.Random(5)
    tokens = [*"ab.-_", *"()|*+?", "[ab]", "[^a]", "\\.", "\\b", "^", "$", "\\w", "\\D", "{2}", "{1,2}", "(?i)"]
    compared = 0
    while compared < 3000:
        expression = "".join(rng.choice(tokens) for _ in range(rng.randint(1, 8)))
        try:
            automaton, peer = Automaton(expression), re.compile(expression)
        except (PatternError, re.error):
            continue
        compared += 1
        for _ in range(4):
            name = "".join(rng.choice("abA.-_") for _ in range(rng.randint(0, 5)))
            assert automaton.matches(name) is (peer.fullmatch(name) is not None), (expression, name)


@pytest.mark.parametrize("expression", ["(a|a)*(a|a)*(a|a)*b", "(a*)*(a*)*b", "(a?){40}a{40}b", "(.*a){12}b"])
def test_matching_takes_linear_time(expression: str) -> None:
    """Matching is linear even for expressions that take backtracking engines exponential time."""
    automaton = Automaton(expression)
    assert not automaton.matches("a" * 249)
    assert automaton.matches("a" * 60 + "b")
    assert len(automaton._nfa_states) <= NFA_STATES_MAX


def test_automaton_cache_is_bounded() -> None:
    automaton = Automaton("[ab]*a[ab]{14}")
    rng = random.Random(1)
    for _ in range(700):
        name = "".join(rng.choice("ab") for _ in range(60))
        assert automaton.matches(name) is (name[-15] == "a")
        assert sum(len(state.transitions) for state in automaton._dfa_states.values()) <= CACHED_TRANSITIONS_MAX


class Topics:
    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.query_count = 0
        self._callbacks: list[Callable[[], None]] = []

    def topics(self) -> list[str]:
        self.query_count += 1
        return self.names

    def on_change(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def replace(self, *names: str) -> None:
        self.names = list(names)
        for callback in self._callbacks:
            callback()


class Scene:
    """A topic lookup with scripted topics."""

    def __init__(self, *names: str) -> None:
        self.simulation = Simulation(1)
        self.topics = Topics(*names)
        self.lookup = TopicLookup(self.simulation.host("broker").runtime, self.topics)

    def names(self, expression: str) -> tuple[str, ...]:
        found: dict[str, MatchedTopics] = self.simulation.run_until(self.lookup.resolve([expression]))
        return found[expression].topic_names


def test_matches_follow_topic_changes() -> None:
    """Matches follow topic changes and are sorted."""
    scene = Scene("b1", "a1", "x")
    assert scene.names("[ab].*") == ("a1", "b1")
    scene.topics.replace("b1", "a2", "x", "b0")
    assert scene.names("[ab].*") == ("a2", "b0", "b1")
    scene.topics.replace()
    assert scene.names("[ab].*") == ()


def test_only_new_topics_are_matched() -> None:
    """Each expression is matched once against a new topic."""
    scene = Scene(*(f"topic-{number}" for number in range(1000)))
    tried_names: list[str] = []
    entry = scene.lookup._entry("topic-9.*")
    matches = entry.automaton.matches
    entry.automaton.matches = lambda name: tried_names.append(name) or matches(name)  # type: ignore[func-returns-value,method-assign]
    assert len(scene.names("topic-9.*")) == 111
    assert len(tried_names) == 1000
    scene.topics.replace(*scene.topics.names, "topic-99999")
    assert "topic-99999" in scene.names("topic-9.*")
    assert scene.names("topic-9.*") == scene.names("topic-9.*")
    assert tried_names[1000:] == ["topic-99999"]


def test_topic_created_during_a_lookup() -> None:
    """A lookup over several reactor iterations uses one consistent list of topics; the next one finds the new topic."""
    scene = Scene("a1", "a2")
    scene.names("a.*")
    scene.topics.replace("a1", "a2", "a3")
    entry = scene.lookup._entry("a.*")
    matches = entry.automaton.matches

    def change(name: str) -> bool:
        if name == "a3":
            scene.topics.replace("a1", "a2", "a3", "a4")
        return matches(name)

    entry.automaton.matches = change  # type: ignore[method-assign]
    assert scene.names("a.*") == ("a1", "a2", "a3")
    assert scene.names("a.*") == ("a1", "a2", "a3", "a4")


def test_invalid_expressions_are_refused() -> None:
    """The error is INVALID_REGULAR_EXPRESSION and includes a reason."""
    scene = Scene("a")
    with pytest.raises(KafkaError) as caught:
        scene.lookup.check("a(")
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "character 2" in caught.value.message
    assert not scene.lookup.can_read("a(")
    assert scene.lookup.can_read("a")


def test_unused_expressions_are_evicted() -> None:
    """The least recently used expressions are evicted."""
    scene = Scene("a")
    for number in range(EXPRESSIONS_MAX + 10):
        assert scene.names(f"a|{number}") == ("a",)
    assert len(scene.lookup._entries) == EXPRESSIONS_MAX
    assert scene.names("a|0") == ("a",)
