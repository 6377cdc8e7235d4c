"""Consumer groups: who reads what, and how far.

* ``records`` what lies in ``__consumer_offsets``: offsets and classic groups
"""
