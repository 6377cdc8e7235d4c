"""Rules that all commands and Spark pipelines share when they copy the records of topics.

* ``topics``: looks up source topics, and checks or creates target topics
* ``offset_ranges``: counts the offsets to copy
* ``record_columns``: Arrow types of records in tables and Parquet files
* ``complete_files``: files that appear only when they are complete
"""
