"""Spark: topics as tables, through PySpark's data sources for Python, without a JAR.

* ``source``: ``format("kreplica")``, where Spark begins; ``pyspark_kreplica`` is only the name by which it is found
* ``options`` and ``sink_options``, ``client_settings``, ``texts``: what users may say; ``positions`` where reads begin
  and end
* ``batch_read``, ``stream_read``: ``offset_lookup`` what a read covers, ``ranges`` who reads what (pure),
  ``range_reading`` one task's offsets, ``decoding`` record batches become Arrow columns, ``record_ends`` where records
  end, ``rows`` Arrow columns become rows
* ``lag`` how far a query is behind
* ``writers``, ``writing``: ``row_columns`` rows by partition, ``partitioning`` by key, ``encoding`` Arrow columns
  become record batches
* ``exactly_once``, ``decisions``, ``leftovers``: micro-batches that are visible once; ``batch_sequence`` batches that a
  driver numbers itself
* ``session`` a session with nothing but what is installed, ``spark_home`` Spark's folder for it
"""
