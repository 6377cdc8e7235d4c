"""Spark integration: topics as tables through PySpark's Python data source API; no JAR is needed.

* ``data_source``: the data source ``format("kreplica")``; Spark discovers it through the package ``pyspark_kreplica``
* ``client_settings``, ``option_parsing``: options shared by source and sink
* ``connection_security``: TLS and SASL for connections from the driver and executors
* ``source``: batch and streaming reads, from brokers or from segment files
* ``sink``: batch and streaming writes, at least once or exactly once
* ``pipelines``: archive, replay, compare, audit and profile of whole topics
* ``session``, ``spark_home``: a local session that needs only the installed packages
"""
