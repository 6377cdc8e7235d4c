"""Handwritten codecs for frequent messages with ``struct``, which use the same dicts as the product's codec.

They do only the minimum for one version: tag sections must be empty, arrays must be short, and values are checked only
by ``struct``.

* ``values``: the measured messages
* ``pieces``: strings, variable-length numbers, arrays of numbers
* ``produce``, ``fetch``, ``list_offsets``, ``metadata``, ``leader_and_isr``: ``parse_*`` and ``build_*`` by version
"""
