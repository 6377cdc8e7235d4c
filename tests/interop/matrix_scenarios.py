"""All scenarios of the matrix, by subject."""

from __future__ import annotations

import matrix_admin
import matrix_admin_cluster
import matrix_admin_groups
import matrix_admin_producers
import matrix_consumer
import matrix_faults
import matrix_groups
import matrix_producer
import matrix_transactions
from matrix_table import SCENARIOS

SUBJECTS = (
    matrix_producer,
    matrix_transactions,
    matrix_consumer,
    matrix_groups,
    matrix_faults,
    matrix_admin,
    matrix_admin_cluster,
    matrix_admin_groups,
    matrix_admin_producers,
)
"""The order on the page; importing the modules has filled the table."""

_ORDER = [subject.SUBJECT for subject in SUBJECTS]
SCENARIOS.sort(key=lambda each: _ORDER.index(each.subject))

__all__ = ["SCENARIOS", "SUBJECTS"]
