"""What is wrong with what the clients of a cluster were told, seen from outside: pure checks over their history.

* ``history`` what clients did and were told: start here
* ``kinds`` what can be wrong
* ``tellings`` who was told what of each partition
* ``writes`` records that are lost, there twice, or elsewhere than was told
* ``polls`` readers that went back, or over what others read
* ``isolation`` records that were to be kept from readers
* ``report`` what was found, counted, and which of it is an error
"""

from kreplica.testing.anomalies.history import ClientHistory
from kreplica.testing.anomalies.kinds import MEANINGS, Anomaly, Kind
from kreplica.testing.anomalies.report import AnomalyReport, Expectations, find_anomalies, report

__all__ = ["MEANINGS", "Anomaly", "AnomalyReport", "ClientHistory", "Expectations", "Kind", "find_anomalies", "report"]
