"""Which broker holds which replica or leads which partition, as sets of bits: what ``exchanges`` evens out.

A partition is a bit; the sets are Python's integers, so that a question about all partitions of two brokers is a few
machine instructions per 64 of them.  Bits are in the order of the partitions' costs: the lowest bit of a set is its
cheapest partition, the highest its dearest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from kreplica.cluster.count_balancing import Move


class HeldReplicas:
    """Replicas on brokers.  A move costs what must be copied, and gives back what need not be copied any more.

    Moves keep each partition's spread over racks as good as it is: they go to a rack that has fewer of its replicas.

    :param racks: of the brokers that may hold replicas; what is assigned to others is dropped.
    :param assigned: replicas by partition, as they are on disk now.
    :param costs: of copying each partition, ascending.
    :param cordoned: who neither gives nor takes.
    :param leaders_stay: whether the first replica of each partition stays where it is.
    """

    def __init__(
        self,
        racks: Mapping[int, str | None],
        assigned: Sequence[Sequence[int]],
        costs: Sequence[int],
        *,
        cordoned: Collection[int] = (),
        leaders_stay: bool = False,
    ) -> None:
        self.racks = racks
        self.brokers = sorted(broker for broker in self.racks if broker not in cordoned)
        self._costs = costs
        self._pinned = dict.fromkeys(self.racks, 0)
        self._original = dict.fromkeys(self.racks, 0)
        self._held = dict.fromkeys(self.racks, 0)
        self._counts = dict.fromkeys(self.racks, 0)
        self._replicas: list[set[int]] = [set() for _ in assigned]
        self._in_rack: dict[str | None, list[int]] = defaultdict(list)
        """By rack, at index k: the partitions with more than k replicas there."""
        for item, replicas in enumerate(assigned):
            for broker in replicas:
                if broker in self.racks:
                    self._original[broker] |= 1 << item
                    self._add(item, broker)
            if leaders_stay:
                self._pinned[replicas[0]] |= 1 << item

    def replicas(self, item: int) -> Collection[int]:
        """The brokers that hold the partition."""
        return self._replicas[item]

    def items(self, broker: int) -> Iterator[int]:
        """The partitions that it holds."""
        return _each(self._held[broker])

    # --- as exchanges sees it ----------------------------------------------------------------------------------------

    def count(self, broker: int) -> int:
        return self._counts[broker]

    def cheapest_move(self, source: int, target: int) -> Move | None:
        free = self._movable(source, target)
        if not free:
            return None
        at_source, at_target = self._original[source], self._original[target]
        home = free & ~at_source & at_target
        if home:
            item = home.bit_length() - 1
            return Move(-self._costs[item], item)
        as_dear = free & ~(at_source ^ at_target)
        if as_dear:
            return Move(0, _lowest(as_dear))
        item = _lowest(free)
        return Move(self._costs[item], item)

    def cost(self, item: int, source: int, target: int) -> int:
        copied = not self._original[target] >> item & 1
        saved = not self._original[source] >> item & 1
        return self._costs[item] * (copied - saved)

    def allows(self, item: int, source: int, target: int) -> bool:
        return bool(self._movable(source, target) >> item & 1)

    def move(self, item: int, source: int, target: int) -> None:
        self._remove(item, source)
        self._add(item, target)

    def pin(self) -> None:
        """What is held now stays where it is; only what is placed after this moves."""
        for broker, held in self._held.items():
            self._pinned[broker] |= held

    # --- one partition -----------------------------------------------------------------------------------------------

    def place_one(self, item: int) -> bool:
        """One more replica, where it stands best; false where no broker can take it."""
        free = [broker for broker in self.brokers if broker not in self._replicas[item]]
        if not free:
            return False
        self._add(item, min(free, key=lambda b: (self._crowd(item, b), self._counts[b])))
        return True

    def drop_one(self, item: int, among: Collection[int] | None = None) -> None:
        """One replica less: of the rack that has most of them, on the fullest broker.

        :param among: those of its replicas that may go; None for all.
        """
        choice = sorted(self._replicas[item] if among is None else among)
        self._remove(item, max(choice, key=lambda b: (self._crowd(item, b), self._counts[b])))

    # --- racks -------------------------------------------------------------------------------------------------------

    def spread_over_racks(self) -> None:
        """Move replicas of partitions that have two more in one rack than they could have in another."""
        if len(set(self.racks.values())) < 2:
            return
        for item in range(len(self._replicas)):
            while (better := self._better_rack(item)) is not None:
                self.move(item, *better)

    def _better_rack(self, item: int) -> tuple[int, int] | None:
        givers = [b for b in self.brokers if b in self._replicas[item] and not self._pinned[b] >> item & 1]
        takers = [broker for broker in self.brokers if broker not in self._replicas[item]]
        if not givers or not takers:
            return None
        source = max(givers, key=lambda b: (self._crowd(item, b), self._counts[b]))
        target = min(takers, key=lambda b: (self._crowd(item, b), self._counts[b]))
        return (source, target) if self._crowd(item, source) - self._crowd(item, target) > 1 else None

    def _crowd(self, item: int, broker: int) -> int:
        """How many replicas the partition has in that broker's rack."""
        return sum(more_than >> item & 1 for more_than in self._in_rack[self.racks[broker]])

    def _movable(self, source: int, target: int) -> int:
        """The partitions of which a replica may move: within a rack, or to a rack that has fewer of them."""
        free = self._held[source] & ~self._held[target] & ~self._pinned[source]
        if self.racks[source] == self.racks[target]:
            return free
        here, there = self._in_rack[self.racks[source]], self._in_rack[self.racks[target]]
        allowed = 0
        for k, more_than in enumerate(here):
            allowed |= more_than & ~there[k] if k < len(there) else more_than
        return free & allowed

    def _add(self, item: int, broker: int) -> None:
        bit = 1 << item
        self._held[broker] |= bit
        self._counts[broker] += 1
        self._replicas[item].add(broker)
        in_rack = self._in_rack[self.racks[broker]]
        for k, more_than in enumerate(in_rack):
            if not more_than & bit:
                in_rack[k] |= bit
                return
        in_rack.append(bit)

    def _remove(self, item: int, broker: int) -> None:
        bit = 1 << item
        self._held[broker] &= ~bit
        self._counts[broker] -= 1
        self._replicas[item].remove(broker)
        in_rack = self._in_rack[self.racks[broker]]
        for k in reversed(range(len(in_rack))):
            if in_rack[k] & bit:
                in_rack[k] &= ~bit
                return


class PreferredLeaders:
    """Which replica of each partition stands first.  A move costs 1 where the first before was another.

    :param chosen: the replicas of each partition, who should rather lead first.
    """

    def __init__(self, brokers: Sequence[int], chosen: Sequence[tuple[int, ...]]) -> None:
        self.brokers = sorted(brokers)
        self._chosen = chosen
        self._holds = dict.fromkeys(self.brokers, 0)
        self._original = dict.fromkeys(self.brokers, 0)
        for item, replicas in enumerate(chosen):
            self._original[replicas[0]] |= 1 << item
            for broker in replicas:
                self._holds[broker] |= 1 << item
        self._leads = dict(self._original)

    def ordered(self, item: int) -> tuple[int, ...]:
        """The partition's replicas, with the one that shall lead first."""
        replicas = self._chosen[item]
        leader = next(broker for broker in replicas if self._leads[broker] >> item & 1)
        return (leader, *(broker for broker in replicas if broker != leader))

    def items(self, broker: int) -> Iterator[int]:
        """The partitions that it leads."""
        return _each(self._leads[broker])

    def count(self, broker: int) -> int:
        return self._leads[broker].bit_count()

    def cheapest_move(self, source: int, target: int) -> Move | None:
        free = self._leads[source] & self._holds[target]
        if not free:
            return None
        item = _lowest(free & self._original[target] or free & ~self._original[source] or free)
        return Move(self.cost(item, source, target), item)

    def cost(self, item: int, source: int, target: int) -> int:
        return (self._original[source] >> item & 1) - (self._original[target] >> item & 1)

    def allows(self, item: int, source: int, target: int) -> bool:
        return bool((self._leads[source] & self._holds[target]) >> item & 1)

    def move(self, item: int, source: int, target: int) -> None:
        self._leads[source] &= ~(1 << item)
        self._leads[target] |= 1 << item


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _each(bits: int) -> Iterator[int]:
    # From a text: shifting a number of 100,000 bits once for each bit would be quadratic.
    return (item for item, bit in enumerate(reversed(f"{bits:b}")) if bit == "1")
