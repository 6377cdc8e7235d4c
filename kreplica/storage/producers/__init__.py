"""Producer state of a log: sequence numbers, epochs and transactions.

* ``producer_state``: all producers of a log; ``producer_entry``: one; ``producer_limits``: how many are kept
* ``duplicates``: batches that were sent again; ``rejected_batches``: batches that a log rejected and may accept later
* ``producer_errors``: errors of batches that do not fit the state
* ``aborted_transactions``, ``snapshots``: files; ``transaction_verification``: verification of new transactions
"""
