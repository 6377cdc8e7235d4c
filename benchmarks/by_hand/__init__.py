"""Handwritten codecs of hot messages with ``struct``, from and to the same dicts as the product's codec.

They do only the minimum for one version: tag sections must be empty, arrays short, and only ``struct`` checks the
values.

* ``values``: the measured messages
* ``pieces``: strings, variable-length numbers, arrays of numbers
* ``produce``, ``fetch``, ``list_offsets``, ``metadata``, ``leader_and_isr``: ``parse_*`` and ``build_*`` by version
"""
