"""Requests and responses of the clients of one run, and checks of them.

* ``record_history``: records of one topic
* ``transaction_history``: transactions and their outcomes
"""
