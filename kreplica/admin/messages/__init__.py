"""Records of topics, for people: found, shown, followed and written, by Kafka's protocol from the partitions' leaders.

* ``reading``: ``MessageReader``: a page of records: start here
* ``positions``: where a page begins, and the opaque text by which the next one goes on
* ``scanning``: what of a fetched chunk is wanted, as JSON has it; runs away from the reactor
* ``searching``: what is looked for
* ``tailing``: records as they come
* ``writing``: one record in
"""
