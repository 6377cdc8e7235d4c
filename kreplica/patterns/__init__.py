"""Regular expressions in RE2's syntax, matched in time linear in the text, whatever a client sends.

The standard library's ``re`` would stop the broker for hours at a short expression of a client's choice.

* ``characters``: ``Characters``: a set of characters, or all but those
* ``syntax``: the tree of an expression; ``parser``: reads it
* ``automaton``: ``Automaton``: matches texts
"""

from kreplica.patterns.automaton import Automaton
from kreplica.patterns.parser import PatternError, parse

__all__ = ["Automaton", "PatternError", "parse"]
