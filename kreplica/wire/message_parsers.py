"""Parsers that learn message templates; each broker or client connection has its own."""

from __future__ import annotations

from typing import Any

from kreplica.wire.primitives import Buffer
from kreplica.wire.schema import MessageParser, Schema
from kreplica.wire.template_cache import TemplateParser


class MessageParsers:
    """Parsers with the templates that one broker or client connection has learned; not thread-safe."""

    def __init__(self) -> None:
        self._parsers: dict[tuple[Schema, int], MessageParser] = {}

    def parse(self, schema: Schema, version: int, buffer: Buffer, offset: int = 0) -> dict[str, Any]:
        """Parse a message; parameters, result and errors are those of ``Schema.parse``."""
        return (self._parsers.get((schema, version)) or self.parser(schema, version))(buffer, offset)

    def parser(self, schema: Schema, version: int) -> MessageParser:
        """Return a function that parses one version, for the hot path.

        :raise ProtocolError: the message has no such version.
        """
        parser = self._parsers.get((schema, version))
        if parser is None:
            parser = schema.parser(version)
            if schema.varying is not None:
                parser = TemplateParser(schema.varying, schema.tree(version), parser, schema.builder(version))
            self._parsers[schema, version] = parser
        return parser
