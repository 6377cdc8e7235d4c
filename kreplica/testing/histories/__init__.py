"""Histories: requests and responses of the clients of one run, with checks of them.

* ``record_history`` records of one topic
* ``transaction_history`` transactions and their outcomes
"""
