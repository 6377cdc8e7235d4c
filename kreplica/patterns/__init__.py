"""Regular expressions in RE2's syntax; matching takes time linear in the length of the text.

With the standard library's ``re``, one short expression from a client could block the broker for hours.

* ``characters``: ``Characters``: a set of characters or its complement
* ``syntax``: the tree of an expression; ``parser``: reads it
* ``automaton``: ``Automaton``: matches text against an expression
"""

from kreplica.patterns.automaton import Automaton
from kreplica.patterns.parser import PatternError, parse

__all__ = ["Automaton", "PatternError", "parse"]
