"""Replays the journal of a controller: decides again from its inputs and compares the decisions.

* ``replay`` start here; ``reading`` the files of a journal
* ``world`` and ``start`` the controller's recorded dependencies and initial state
* ``script`` the recorded effects that are compared
* ``story`` and ``difference`` a run and its first difference as text
"""
