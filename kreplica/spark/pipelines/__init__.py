"""What is done with whole topics on Spark.

* ``replica_comparison`` whether replicas of one partition agree, batch by batch (no Spark in it)
"""
