"""Kafka's wire protocol without I/O: bytes in, plain dicts out, and back.  It touches no socket, clock or thread.

* ``schema``: ``Schema`` is one message in all its versions, compiled when first used
* ``grammar``: the text that describes a message, one line per field
* ``types``, ``structures``: what a message is made of, as constructs that parse and build slowly and say what is wrong
* ``parsing``, ``building``: turn a tree of types into the source of one fast function
* ``template_cache``: templates of messages that differ only in a few numbers; ``message_parsers``: their owner
* ``primitives``: what that source calls: varints, tag sections; and the bounds on input
* ``messages``: every message of the protocol, one module per subject; ``messages.APIS`` by key
* ``headers``: of requests and responses
* ``framing``: cuts a byte stream into frames
* ``batches``: record batches by header and checksum: read, checked, stamped
* ``records``: what is inside a batch; ``record_columns`` reads all of it at once
* ``batch_building``: batches from records, and from a part of another batch's records
* ``control_records``: the markers that end transactions; ``notes``: what produce interceptors leave in a log
* ``compression``: the codecs of record batches
* ``partitioning``: which partition a key belongs to

A request is read with ``FrameReader``, ``parse_request_header``, ``APIS[key].request.parse(version, frame, offset)``,
and answered with ``build_response_header`` + ``APIS[key].response.build(version, value)``.
"""
