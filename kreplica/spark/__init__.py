"""Spark: topics as tables, through PySpark's data sources for Python, without a JAR.

* ``decoding`` record batches become Arrow columns
"""
