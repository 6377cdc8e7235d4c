"""Log directories: locks, identities, checkpoints, creation and deletion of logs.

* ``log_directories``: all directories of a broker; ``log_directory``: one; ``directory_choice``: where a new log goes
* ``opening``, ``closing``, ``closed_logs``: start and shutdown; ``directory_files``, ``checkpoints``: small files
* ``directory_creation``, ``file_removal``: creation and deletion of logs
* ``periodic_work``: schedule of retention, flushing, ``log_cleaner`` (compaction) and ``scrubbing``
* ``failed_logs``, ``repair``, ``rejections``: logs and appends that failed; ``disk_times``: latency of the disk
"""
