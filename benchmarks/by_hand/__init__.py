"""Hot messages parsed and built as one writes it by hand with ``struct``: from and to the same dicts as the codec's.

They are what a careful program for that one version would do, and no more: tag sections must be empty, arrays of
numbers short, and nothing is checked that ``struct`` does not check.

* ``values``: the messages that are measured
* ``pieces``: strings, numbers of variable length, arrays of numbers
* ``produce``, ``fetch``, ``list_offsets``, ``metadata``, ``leader_and_isr``: ``parse_*`` and ``build_*`` by version
"""
