"""What is done with whole topics on Spark: each pipeline a function that takes a session and gives a report.

* ``progress`` how far one has come
* ``archive_layout`` how an archive lies on a disk (no Spark in it), ``file_stores`` where its own notes are kept
* ``replica_comparison`` whether replicas of one partition agree, batch by batch (no Spark in it)
"""
