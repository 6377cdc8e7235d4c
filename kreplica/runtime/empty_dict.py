"""Empty dictionary that many objects share until they add an entry.

A broker with many partitions has many logs that are not in use. Each empty dictionary takes 64 bytes.
"""

from __future__ import annotations

from typing import Any, NoReturn


class EmptyDict(dict[Any, Any]):
    """Dictionary without entries; rejects new ones.

    Its users assign their own dictionary before they add an entry.
    """

    __slots__ = ()

    def __setitem__(self, key: object, value: object) -> NoReturn:
        raise TypeError("this dictionary is shared and stays empty")

    def setdefault(self, key: object, default: object = None) -> NoReturn:
        raise TypeError("this dictionary is shared and stays empty")

    def update(self, *entries: object, **more: object) -> NoReturn:
        raise TypeError("this dictionary is shared and stays empty")

    def __ior__(self, entries: object) -> NoReturn:  # type: ignore[misc]
        raise TypeError("this dictionary is shared and stays empty")


EMPTY_DICT: dict[Any, Any] = EmptyDict()
