"""Decodes and encodes keys and values of records: built-in formats, registered schemas, and filters.

* ``catalogue``: ``Formats``, which chooses formats and decodes keys and values; start here
* ``built_in``: the built-in formats as plugins; ``json_format``, ``text_format``, ``hex_format``, ``avro_format``,
  ``protobuf_format``, ``json_schema_format``, ``msgpack_format``, ``cbor_format``: one format each
* ``json_values``: conversion of decoded values to JSON, and its limits
* ``record_schemas``: schemas in memory (``schema_store``) and the client of a registry (``registry``);
  ``schema_header``: header of records with a schema; ``protobuf_schemas``, ``protobuf_text``: descriptors
* ``filters``: conditions on records, in the Common Expression Language; ``filter_syntax``: limits on expressions;
  ``cel_library``: loads the library
* ``messages``: records (``record_data``) as documents of the admin API

The libraries of a format are imported when the format is first used.
"""
