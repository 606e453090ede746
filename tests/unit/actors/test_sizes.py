"""The size of a driver's commands to its actors: never slots times actors, of which there may be a thousand each."""

from __future__ import annotations

import json

import pytest

from spatialstream.actors.wire import Command, Gathering
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.stages.tasks import RoundTasks
from spatialstream.stages.turns import Round
from tests.mute_actors import Driven

LOAD = {"objects": 5, "matches": 7, "seconds": 0.1, "held": 10, "bytes": 100, "continuous": {}, "spent": {}}


def version(slots: int) -> RoutingVersion:
    return build(WGS84, ObjectBatch.of([]), QueryBatch.of([]), slots, slots)


def of_a_round(slots: int, parts: int, actors: int) -> tuple[int, int]:
    """Commands of a round, and their bytes."""
    with Driven(version(slots), parts, actors, dict.fromkeys(range(slots), LOAD)) as driven:
        driven.epoch()
        driven.round()  # all actors are there from now on
        driven.epoch()
        calls, size = driven.counted()
        record, summary = driven.round()
        assert record.round.number == 1
        assert set(summary.loads) == set(range(slots))
        again, more = driven.counted()
        return again - calls, more - size


def test_what_a_round_says_to_a_part_grows_with_actors_by_their_addresses() -> None:
    few, many = of_a_round(64, 8, 4), of_a_round(64, 8, 32)
    assert few[0] == many[0] == 8
    assert many[1] - few[1] < 8 * 28 * 60


def test_what_a_round_says_to_a_part_grows_with_slots_by_their_offsets() -> None:
    few, many = of_a_round(8, 4, 4), of_a_round(256, 4, 4)
    assert many[1] - few[1] < 4 * 248 * 30


@pytest.mark.parametrize("slots", [4, 1_024])
def test_what_a_part_says_to_an_actor_is_about_its_items_alone(slots: int) -> None:
    tasks, items = RoundTasks(Round(5, (7,), (0,), 10**12, 3)), [(slot, 10**9, 10**9 + 1) for slot in range(slots)]
    work, merge = (Command.of(each, (), 2, 3) for each in (tasks.work, tasks.merge))
    sources = [(f"10.0.0.1:{at}", tuple(items[at : at + 4])) for at in range(0, slots, 4)]
    given = Gathering(merge, work, sources, [address for address, _ in sources])
    for part, body in zip(range(3), given.of_parts(range(3)), strict=True):
        told = Gathering.read(json.loads(body))
        assert (told.merge, told.work.part) == (Command.of(tasks.merge, (), 2, 3, part), part)
        for (address, command), (wanted, mine) in zip(told.commands(), sources, strict=True):
            assert (address, command) == (wanted, Command.of(tasks.work, mine, 2, 3, part))
            assert len(command.to_json()) < 640


def test_commands_over_several_groups_are_those_over_each() -> None:
    command = Command.of(RoundTasks(Round(5, (7,), (0,), 10**12, 3)).checkpoint, (), 2)
    groups = [[1, -1], [(2, 3, 4)], []]
    for items, body in zip(groups, command.over(groups), strict=True):
        assert Command.read(json.loads(body)) == Command(command.kind, command.method, command.value, tuple(items), 2)
