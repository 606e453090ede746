"""A process lets go of what another one has now."""

from __future__ import annotations

import pytest

from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.stages.merge import merger_owner
from spatialstream.stages.route import registry_owner
from spatialstream.stages.state import OwnerState
from spatialstream.stages.tasks import IdleTasks
from spatialstream.stages.work import slot_owner
from spatialstream.stream.settings import StreamSettings

TURN = 3, 0


@pytest.mark.parametrize(
    ("item", "gone"),
    [
        (0, {slot_owner(0), registry_owner(0)}),
        (1, {slot_owner(1), registry_owner(1)}),
        (-1, {merger_owner(0)}),
        (-2, {merger_owner(1)}),
        (2, set()),
    ],
)
def test_what_has_moved_is_in_memory_no_more_and_the_rest_is(item: int, gone: set[str]) -> None:
    settings, storage = StreamSettings("s", slots=2), MemoryStorage()
    channel = MemoryChannel([MemoryLog() for _ in range(2)], MemoryLog())
    world = settings.world(storage, channel, MemorySink([MemoryLog()], MemoryLog()))
    owners = [owner(item) for owner in (slot_owner, registry_owner, merger_owner) for item in range(2)]
    states = {owner: OwnerState(storage, owner, TURN) for owner in owners}
    for owner, state in states.items():
        state.end(owner)

    assert list(IdleTasks().forget(world, item)) == []

    assert {owner for owner, state in states.items() if state.ended() is None} == gone
