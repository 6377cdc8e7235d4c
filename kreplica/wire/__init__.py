"""Kafka's wire protocol without I/O: bytes in, plain dicts out, and back.  It touches no socket, clock or thread.

* ``schema``: ``Schema`` is one message in all its versions, compiled when first used
* ``grammar``: the text that describes a message, one line per field
* ``types``, ``structures``: types of fields, arrays and records; they parse and build slowly, with detailed errors
* ``parsing``, ``building``: generate the source of one fast function from a tree of types
* ``template_cache``: templates of messages that differ only in a few numbers; ``message_parsers``: parsers with such
  templates
* ``primitives``: functions that the generated code calls (varints, tag sections), and the limits on input
* ``messages``: every message of the protocol, one module per subject; ``messages.APIS`` by key
* ``headers``: request and response headers
* ``framing``: splits a byte stream into frames
* ``batches``: headers and checksums of record batches, without reading records
* ``records``: reads the records of a batch one by one; ``record_columns``: in bulk, as columns or rows;
  ``plain_batches``: the rows of many batches
* ``batch_building``: builds batches from records, and filters the records of a batch
* ``control_records``: transaction markers; ``interceptor_notes``: notes of produce interceptors, as control batches
* ``compression``: the codecs of record batches
* ``partitioning``: computes the partition of a key
* ``kernels``: optional loops in C, which replace parts of the other modules

A request is read with ``FrameReader``, ``parse_request_header``, ``APIS[key].request.parse(version, frame, offset)``,
and its response is ``build_response_header(...)`` + ``APIS[key].response.build(version, value)``.
"""
