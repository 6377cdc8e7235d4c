"""Known damage of a log, excluded from reads because no better copy exists."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime.empty_dict import EMPTY_DICT
from kreplica.storage.segments.damage import WHOLE_SEGMENT, Damage
from kreplica.storage.segments.segment import Segment
from kreplica.storage.segments.segment_list import Segments

_log = Logger()


class KnownDamage:
    """Known damage of one log.

    :ivar by_segment: the first damage of each segment, by its base offset.
    """

    __slots__ = ("_name", "_segments", "by_segment")

    def __init__(self, name: TopicPartition, segments: Segments, by_segment: Mapping[int, Damage]) -> None:
        self._name = name
        self._segments = segments
        self.by_segment: dict[int, Damage] = dict(by_segment) or EMPTY_DICT

    def size_before(self, segment: Segment, position: int, size: int) -> int:
        """Return the size of the part of a range that precedes known damage.

        :raise KafkaError: CORRUPT_MESSAGE if the range starts with damage.
        """
        damage = self.by_segment.get(segment.base_offset)
        if damage is None:
            return size
        if damage.position in (WHOLE_SEGMENT, position):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage))
        return damage.position - position if position < damage.position < position + size else size

    def exclude(self, damage: Damage) -> None:
        """Exclude damaged batches from reads; all other records are served."""
        if damage.base_offset not in self.by_segment:
            _log.error(
                "{log} is damaged and no other in-sync replica has the data; all other records are served: {damage}",
                log=str(self._name),
                damage=str(damage),
            )
        self.by_segment = {**self.by_segment, damage.base_offset: damage}

    def clear(self, base_offset: int) -> None:
        """Forget the damage of a segment, because it was read without errors."""
        if self.by_segment.pop(base_offset, None) is not None:
            _log.info(
                "{log}: segment {base} was read without errors; all its records are served again",
                log=str(self._name),
                base=base_offset,
            )

    def clear_removed(self, replaced: Collection[int] = ()) -> None:
        """Forget damage in segments that were removed, truncated or rewritten.

        :param replaced: base offsets of rewritten segments.
        """
        if self.by_segment:
            sizes = {each.base_offset: each.size for each in self._segments if each.base_offset not in replaced}
            self.by_segment = {
                base: damage for base, damage in self.by_segment.items() if max(damage.position, 0) < sizes.get(base, 0)
            }
