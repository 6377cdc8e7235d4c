"""What is done with whole topics on Spark: each pipeline a function that takes a session and gives a report.

* ``progress`` how far one has come
* ``replica_comparison`` whether replicas of one partition agree, batch by batch (no Spark in it)
"""
