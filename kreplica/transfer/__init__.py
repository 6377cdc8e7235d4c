"""Rules that all commands and Spark pipelines share when they copy the records of topics.

* ``topics``: existing topics, and topics that receive records: checks and creation
* ``offset_ranges``: number of offsets to copy
* ``record_columns``: Arrow types of records in tables and Parquet files
* ``complete_files``: files that appear only when they are complete
"""
