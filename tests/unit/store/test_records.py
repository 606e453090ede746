"""The small nodes of a stream in ZooKeeper, written and read."""

import json

from spatialstream.store.records import active_bytes, epochs_bytes, pending_bytes, read_state
from spatialstream.store.state import RoutingState


def test_what_is_written_is_read():
    state = RoutingState.created(0, 3, "origin", "life").published(1, 3, 0, "p", {"strategy": "rebuild"})
    state = state.activated(1, 5).published(2, 3, 1, "q", {}).acknowledged(2, "exported", [1])
    assert state.pending is not None

    read = read_state(
        active_bytes(state), epochs_bytes(state), pending_bytes(state.pending), ["1-loaded-0", "2-exported-1"]
    )

    assert read == state
    assert read.rebuilt == 1


def test_a_stream_of_which_nobody_has_written_down_whether_its_tree_was_built_anew_has_its_first_one():
    state = RoutingState.created(0, 3, "origin")
    record = json.loads(active_bytes(state))
    for name in ("rebuilt", "kind", "reason"):
        del record[name]

    assert read_state(json.dumps(record).encode(), epochs_bytes(state), None, []) == state
