"""Regular expressions of subscriptions: RE2's syntax, matched in time linear in the name, whatever a client sends.

The standard library's ``re`` would stop the broker for hours at a short expression of a client's choice.  Names of
topics are short and of an alphabet of 65 characters, so that a small automaton does it all.

* ``syntax``: the tree of an expression; ``parser``: reads it
* ``automaton``: ``Automaton``: matches names
* ``lookup``: ``TopicLookup``: which topics expressions name as the cluster changes
"""

from kreplica.groups.consumer.patterns.automaton import Automaton
from kreplica.groups.consumer.patterns.lookup import TopicLookup
from kreplica.groups.consumer.patterns.parser import PatternError, parse

__all__ = ["Automaton", "PatternError", "TopicLookup", "parse"]
