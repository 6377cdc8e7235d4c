"""Anomaly checks: pure functions over the requests and responses of a cluster's clients.

* ``history``: the clients' requests and responses: start here
* ``kinds``: the kinds of anomalies
* ``observed_log``: each partition's records as the clients observed them
* ``writes``: lost, duplicated and misplaced records
* ``polls``: consumers that reread or skipped records
* ``isolation``: reads of aborted and uncommitted records
* ``report``: anomalies counted by kind, and which of them are errors
"""

from kreplica.testing.anomalies.history import ClientHistory
from kreplica.testing.anomalies.kinds import MEANINGS, Anomaly, Kind
from kreplica.testing.anomalies.report import AnomalyReport, Expectations, find_anomalies, report

__all__ = ["MEANINGS", "Anomaly", "AnomalyReport", "ClientHistory", "Expectations", "Kind", "find_anomalies", "report"]
