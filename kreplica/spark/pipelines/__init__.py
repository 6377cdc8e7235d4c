"""What is done with whole topics on Spark: each pipeline a function that takes a session and gives a report.

* ``progress`` how far one has come
* ``archive``: topics become files; ``archive_layout`` how those lie on a disk (no Spark in it), ``archive_batches`` one
  micro-batch, ``json_schema`` and ``json_values`` fields of JSON that grow, ``archive_reading`` all as a table;
  ``file_stores`` where an archive's own notes are, ``stream_checkpoint`` what a stream's checkpoint says
* ``replay``: files become records; ``replay_plan`` which go where, ``replay_steps`` how they are cut (no Spark in it),
  ``replay_sources`` archives and other directories
* ``compare``: an archive and topics; ``compare_offsets`` record by record, ``compare_order`` by content and order,
  ``compare_rows`` digests, ``compare_findings`` what is found (no Spark in it)
* ``replica_comparison`` whether replicas of one partition agree, ``replica_findings`` where not (no Spark in them);
  ``audit`` those of all partitions: ``audit_plan`` which and from where to where, ``audit_cluster`` what the cluster
  says of that, ``audit_files`` and ``audit_brokers`` what they are read from, ``audit_report``, ``audit_work`` what is
  kept
* ``profile``: what topics hold, slice by slice, in ``jobs``; ``profile_batches`` the batches of one as they lie in the
  log, ``profile_measures`` what is measured of them, ``profile_sketches`` of many values, ``profile_transactions`` of
  markers (no Spark in these), ``profile_report`` in figures, ``profile_plan`` as weights of a rebalance
"""
