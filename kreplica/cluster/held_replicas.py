"""Replicas and preferred leaders by broker as bit sets, the input of ``count_balancing`` and ``weight_balancing``.

A partition is a bit and a set is a Python integer, so that comparing all partitions of two brokers takes a few machine
instructions per 64 partitions. Bits are sorted by cost: the lowest bit of a set is the cheapest partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from kreplica.cluster.count_balancing import Move


class HeldReplicas:
    """Replicas of each broker.

    The cost of a move is the data that must be copied because of it; it is negative if the move saves copying.

    Moves never worsen the spread of a partition over racks: a replica stays in its rack or moves to one with fewer
    replicas of the partition.

    :param racks: racks of the brokers that may hold replicas; replicas on other brokers are dropped.
    :param assigned: current replicas by partition.
    :param costs: cost of copying each partition, ascending.
    :param cordoned: brokers from and to which no replicas are moved.
    :param leaders_stay: True to keep the first replica of each partition in place.
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
        """By rack, a list: the item at index k contains the partitions with more than k replicas in that rack."""
        for item, replicas in enumerate(assigned):
            for broker in replicas:
                if broker in self.racks:
                    self._original[broker] |= 1 << item
                    self._add(item, broker)
            if leaders_stay:
                self._pinned[replicas[0]] |= 1 << item

    def replicas(self, item: int) -> Collection[int]:
        """Return the brokers that hold a partition."""
        return self._replicas[item]

    def items(self, broker: int) -> Iterator[int]:
        """Return the partitions of a broker."""
        return _set_bits(self._held[broker])

    # --- Holdings interface ------------------------------------------------------------------------------------------

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
        same_cost = free & ~(at_source ^ at_target)
        if same_cost:
            return Move(0, _lowest_bit(same_cost))
        item = _lowest_bit(free)
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
        """Keep all current replicas in place; only replicas placed later may move."""
        for broker, held in self._held.items():
            self._pinned[broker] |= held

    # --- one partition -----------------------------------------------------------------------------------------------

    def place_one(self, item: int) -> bool:
        """Place another replica on the best broker; return False if no broker can hold it."""
        free = [broker for broker in self.brokers if broker not in self._replicas[item]]
        if not free:
            return False
        self._add(item, min(free, key=lambda b: (self._count_in_rack(item, b), self._counts[b])))
        return True

    def drop_one(self, item: int, among: Collection[int] | None = None) -> None:
        """Remove one replica: from the fullest broker in the rack with the most replicas of the partition.

        :param among: replicas that may be removed; None for all.
        """
        choice = sorted(self._replicas[item] if among is None else among)
        self._remove(item, max(choice, key=lambda b: (self._count_in_rack(item, b), self._counts[b])))

    # --- racks -------------------------------------------------------------------------------------------------------

    def spread_over_racks(self) -> None:
        """Spread the replicas of each partition over racks, as evenly as the movable replicas permit."""
        if len(set(self.racks.values())) < 2:
            return
        for item in range(len(self._replicas)):
            while (better := self._better_rack(item)) is not None:
                self.move(item, *better)

    def _better_rack(self, item: int) -> tuple[int, int] | None:
        sources = [b for b in self.brokers if b in self._replicas[item] and not self._pinned[b] >> item & 1]
        receivers = [broker for broker in self.brokers if broker not in self._replicas[item]]
        if not sources or not receivers:
            return None
        source = max(sources, key=lambda b: (self._count_in_rack(item, b), self._counts[b]))
        target = min(receivers, key=lambda b: (self._count_in_rack(item, b), self._counts[b]))
        return (source, target) if self._count_in_rack(item, source) - self._count_in_rack(item, target) > 1 else None

    def _count_in_rack(self, item: int, broker: int) -> int:
        """Return the number of replicas of a partition in a broker's rack."""
        return sum(more_than >> item & 1 for more_than in self._in_rack[self.racks[broker]])

    def _movable(self, source: int, target: int) -> int:
        """Return the partitions whose replica may move: within its rack, or to a rack with fewer of their replicas."""
        free = self._held[source] & ~self._held[target] & ~self._pinned[source]
        if self.racks[source] == self.racks[target]:
            return free
        source_rack, target_rack = self._in_rack[self.racks[source]], self._in_rack[self.racks[target]]
        allowed = 0
        for k, more_than in enumerate(source_rack):
            allowed |= more_than & ~target_rack[k] if k < len(target_rack) else more_than
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
    """First replica of each partition. A move costs 1 if it replaces the original preferred leader, and -1 if it
    restores it.

    :param chosen: replicas of each partition, preferred leader first.
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

    def replicas_in_order(self, item: int) -> tuple[int, ...]:
        """Return a partition's replicas with the new preferred leader first."""
        replicas = self._chosen[item]
        leader = next(broker for broker in replicas if self._leads[broker] >> item & 1)
        return (leader, *(broker for broker in replicas if broker != leader))

    def items(self, broker: int) -> Iterator[int]:
        """Return the partitions whose preferred leader is this broker."""
        return _set_bits(self._leads[broker])

    def count(self, broker: int) -> int:
        return self._leads[broker].bit_count()

    def cheapest_move(self, source: int, target: int) -> Move | None:
        free = self._leads[source] & self._holds[target]
        if not free:
            return None
        item = _lowest_bit(free & self._original[target] or free & ~self._original[source] or free)
        return Move(self.cost(item, source, target), item)

    def cost(self, item: int, source: int, target: int) -> int:
        return (self._original[source] >> item & 1) - (self._original[target] >> item & 1)

    def allows(self, item: int, source: int, target: int) -> bool:
        return bool((self._leads[source] & self._holds[target]) >> item & 1)

    def move(self, item: int, source: int, target: int) -> None:
        self._leads[source] &= ~(1 << item)
        self._leads[target] |= 1 << item


def _lowest_bit(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _set_bits(bits: int) -> Iterator[int]:
    # Shifting an integer of 100,000 bits once per bit would be quadratic.
    return (item for item, bit in enumerate(reversed(f"{bits:b}")) if bit == "1")
