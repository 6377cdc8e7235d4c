"""Rule for the last stable offset, below which no transaction is open: the end of ``read_committed`` reads."""

from __future__ import annotations


def last_stable_offset(first_unstable: int | None, high_watermark: int, log_start_offset: int) -> int:
    """Return the high watermark or the start of the first open transaction, whichever is smaller.

    It is the log start offset if the start of that transaction has already been deleted.

    :param first_unstable: first offset of the first transaction that is open, or that ended above the high watermark;
        None if there is none.
    """
    if first_unstable is None:
        return high_watermark
    return max(min(first_unstable, high_watermark), log_start_offset)
