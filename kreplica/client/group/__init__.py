"""A consumer's place in its group.

* ``membership`` what a consumer and its membership expect of each other
"""
