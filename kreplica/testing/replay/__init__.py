"""Replays the journal of a controller: passes its inputs to a new controller and compares the outputs.

* ``replay``: start here; ``reading``: the files of a journal
* ``environment`` and ``initial_state``: the controller's recorded dependencies and initial state
* ``script``: the recorded outputs that are compared
* ``entry_text`` and ``difference``: a run and its first difference as text
"""
