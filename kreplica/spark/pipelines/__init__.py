"""Pipelines over whole topics on Spark; each is a function that takes a session and returns a report.

* ``archive``: topics to Parquet files, as a stream
* ``replay``: Parquet files to topics
* ``compare``: an archive against topics, by offset or by content and order
* ``audit``: comparison of all replicas of a cluster
* ``profile``: sizes, rates, keys, codecs and producers of topics
* ``json_schema``, ``json_values``: evolving schemas of JSON values
* ``jobs``, ``progress``: Python functions as Spark jobs, and progress reports
"""
