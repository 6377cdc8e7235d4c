"""Options and faults of a storm, as derived from its seed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kreplica.testing.storms.options import BadOption, StormOptions, options_of
from kreplica.testing.storms.plan import Fault, make_plan, select_faults

WEIGHTS = {"kill": 2.0, "cut": 1.0, "pause": 1.0, "bounce": 1.0}


class TestOptions:
    def test_are_determined_by_the_seed(self) -> None:
        """The same seed gives the same options; some seeds give different ones."""
        assert options_of(7) == options_of(7)
        assert len({options_of(seed) for seed in range(30)}) > 25

    def test_chosen_options_are_kept_and_others_come_from_the_seed(self) -> None:
        """Choosing one option does not change the options that come from the seed."""
        assert options_of(7, {"brokers": "5", "synced": "yes"}) == replace(options_of(7), brokers=5, synced=True)

    def test_can_be_printed_and_parsed(self) -> None:
        """Printed options can be passed to the command to get the same options again."""
        options = options_of(11)
        assert options_of(12, dict(text.split("=") for text in str(options).split())) == options

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("brokesr", "3", "unknown option 'brokesr'; options: seconds, brokers, "),
            ("brokers", "2", "brokers=2: at least 3 are needed"),
            ("brokers", "three", "brokers=three: must be an integer"),
            ("seconds", "many", "seconds=many: must be a number"),
            ("seconds", "0", "seconds=0.0: must be greater than 0"),
            ("fault_interval_s", "-1", "fault_interval_s=-1.0: must be greater than 0"),
            ("synced", "true", "synced=true: must be yes or no"),
        ],
    )
    def test_mistakes_are_named(self, name: str, text: str, message: str) -> None:
        """The error names the invalid option, and lists the valid ones if the name is unknown."""
        with pytest.raises(BadOption, match=message):
            options_of(1, {name: text})

    def test_deprecated_names_are_accepted(self) -> None:
        """A deprecated name sets the option with the current name, unless that is set as well."""
        old = options_of(1, {"calm_s": "4", "loose": "yes", "answer_timeout_s": "7", "chain": "yes"})
        assert (old.fault_interval_s, old.weak_producers, old.request_timeout_s, old.applications) == (4, True, 7, True)
        assert not options_of(1, {"applications": "no", "chain": "yes"}).applications

    def test_load_has_the_requested_rate(self) -> None:
        """Together, the producers of all partitions send the requested number of messages per second."""
        load = StormOptions(messages_per_s=100, batch_records=10, partitions=2).load
        mean_records = (1 + load.records_max) / 2
        assert 2 * mean_records / load.interval_s == 100


class TestPlan:
    def test_is_determined_by_the_seed(self) -> None:
        """The same seed gives the same plan; another seed gives a different one."""
        options = StormOptions()
        assert make_plan(3, options, WEIGHTS) == make_plan(3, options, WEIGHTS)
        assert make_plan(3, options, WEIGHTS) != make_plan(4, options, WEIGHTS)

    @pytest.mark.parametrize("seed", range(20))
    def test_is_in_order_and_within_the_storm(self, seed: int) -> None:
        """Faults start and end within the storm, and no more than the option allows are active at once."""
        options = options_of(seed)
        plan = make_plan(seed, options, WEIGHTS)
        assert [fault.number for fault in plan] == list(range(1, len(plan) + 1))
        assert [fault.at_s for fault in plan] == sorted(fault.at_s for fault in plan)
        for fault in plan:
            assert 0 < fault.at_s <= fault.at_s + fault.duration_s <= options.seconds + 1e-9
            others = [o for o in plan if o.number < fault.number and o.at_s + o.duration_s > fault.at_s]
            assert len(others) < options.overlap

    def test_some_seeds_omit_kinds_of_faults(self) -> None:
        """Some storms have no kills, so that bugs which kills would hide can be found."""
        kinds = [{fault.name for fault in make_plan(seed, StormOptions(seconds=600), WEIGHTS)} for seed in range(20)]
        assert set(WEIGHTS) in kinds
        assert any("kill" not in each for each in kinds)

    def test_a_partial_plan_keeps_its_fault_numbers(self) -> None:
        """Omitting some faults from a plan does not change the remaining ones."""
        plan = [Fault(number, "kill", float(number), 1.0, 0) for number in (1, 2, 3)]
        assert select_faults(plan, [3, 1]) == [plan[0], plan[2]]
