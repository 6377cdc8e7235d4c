"""Reads, searches, follows and writes records of topics through the leaders of their partitions.

* ``reading``: ``MessageReader``: pages of records; start here. ``newest_first``: pages in the reverse order;
  ``pages``: a page under construction; ``start_positions``, ``positions``: start of a page, and page tokens
* ``fetching``: fetches from all leaders; ``scanning``: selects records of a fetched chunk in a worker thread;
  ``searching``: search for text; ``selections``: parameters and bodies of requests
* ``tailing``: live records; ``downloading``: files; ``writing``: single records
* ``message_schemas``: JSON schemas of the REST API
"""
