"""The produce path: validation, append, delayed acknowledgement and response.

* ``handler``: entry point; ``batching``: similar requests of one read; ``sliced_produce``: requests of many partitions
* ``record_checks``: checks of the records in produced batches; ``interception``: plugins that may change or reject them
* ``transactional_produce``: batches of transactions, which may have to be verified first
* ``delayed_produce``: requests that wait for replicas; ``results``: outcomes and response rows
* ``request_templates``, ``response_templates``: requests and responses that differ only in numbers and records
"""
