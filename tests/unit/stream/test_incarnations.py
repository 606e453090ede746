"""A stream that is removed and created again under its name.

What belongs to an earlier incarnation is never taken for its own.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from spatialstream.connectors.folder import Folder
from spatialstream.connectors.keys import block_key, key_of_incarnation, key_within
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.index.kinds import AUTO, DEFAULT
from spatialstream.index.version import build
from spatialstream.model.errors import RunError, StateError, Unavailable
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.stages.versions import load_version
from spatialstream.store.memory import MemoryStore
from spatialstream.store.state import RoutingState
from spatialstream.stream.bootstrap import FirstIndex, check_incarnation, claim, ensure_first_version, locked
from spatialstream.stream.engine import Inline
from spatialstream.stream.job import WorkerJob
from spatialstream.stream.settings import StreamSettings
from tests.leases import Leases, MemoryLease

SETTINGS = StreamSettings("s", slots=2)
FIRST = build(WGS84, ObjectBatch.of([]), QueryBatch.of([]), 4, 2)


def test_an_incarnation_is_made_once_for_all_who_claim_a_checkpoint(tmp_path: Path) -> None:
    leases = Leases()
    with ThreadPoolExecutor(8) as pool:
        lives = set(pool.map(lambda i: claim(SETTINGS, Folder(tmp_path / "one"), MemoryLease(leases), 20.0), range(8)))
    assert len(lives) == 1
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["stream.json"]
    assert len(lives | {SETTINGS.claim(Folder(tmp_path / "other")), ""}) == 3


def test_what_has_been_claimed_needs_no_lease_but_what_has_not_does(tmp_path: Path) -> None:
    away = MemoryLease(Leases())
    away.reachable = False
    with pytest.raises(Unavailable):
        claim(SETTINGS, Folder(tmp_path), away, 0.0)
    incarnation = SETTINGS.claim(Folder(tmp_path))
    assert claim(SETTINGS, Folder(tmp_path), away, 0.0) == incarnation


@pytest.mark.timeout(120)
@pytest.mark.parametrize("owner", ["router", "worker", "stream"])
def test_whoever_has_locked_a_checkpoint_claims_it(tmp_path: Path, owner: str) -> None:
    with locked(tmp_path, owner):
        assert SETTINGS.claim(Folder(tmp_path))


def test_a_checkpoint_from_before_incarnations_had_ids_goes_on_without(tmp_path: Path) -> None:
    (tmp_path / "stream.json").write_text(json.dumps(SETTINGS.identity()))
    assert SETTINGS.claim(Folder(tmp_path)) == SETTINGS.claim(Folder(tmp_path)) == ""
    store = MemoryStore()
    store.create(FIRST)
    check_incarnation(store, Folder(tmp_path), "s", "")


def test_a_checkpoint_of_another_release_is_refused(tmp_path: Path) -> None:
    SETTINGS.claim(Folder(tmp_path))
    path = tmp_path / "stream.json"
    known = json.loads(path.read_text())
    for other in ({**known, "format": 1}, {name: value for name, value in known.items() if name != "format"}):
        path.write_text(json.dumps(other))
        with pytest.raises(StateError, match="was written by an incompatible version"):
            SETTINGS.claim(Folder(tmp_path))


def test_a_checkpoint_of_another_version_of_unicode_is_refused(tmp_path: Path) -> None:
    SETTINGS.claim(Folder(tmp_path))
    path = tmp_path / "stream.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "unicode": "13.0.0"}))
    with pytest.raises(StateError, match=r"belongs to a stream with unicode '13\.0\.0', not '14\.0\.0'"):
        SETTINGS.claim(Folder(tmp_path))


def start(store: MemoryStore, checkpoint: Path, incarnation: str) -> None:
    """Start as a router does."""
    ensure_first_version(store, Folder(checkpoint), SETTINGS, FirstIndex(leaves=4), 0.0, incarnation)


def test_a_checkpoint_that_was_deleted_is_not_made_anew_under_the_old_routing_state(tmp_path: Path) -> None:
    store = MemoryStore()
    start(store, tmp_path / "one", "one")
    start(store, tmp_path / "one", "one")
    for incarnation, new in (("other", True), ("", False)):
        with pytest.raises(StateError, match=r"another incarnation of s \(one\) than .* -m spatialstream remove"):
            start(store, tmp_path / "other", incarnation)
        with pytest.raises(StateError, match="another incarnation"):
            check_incarnation(store, Folder(tmp_path / "other"), "s", incarnation, new=new)


def test_routing_state_that_was_deleted_is_not_made_anew_under_the_old_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "epochs").mkdir()
    (tmp_path / "epochs" / "000000007.json").touch()
    store = MemoryStore()
    with pytest.raises(StateError, match=r"the routing store has no entry.* -m spatialstream remove"):
        start(store, tmp_path, "one")
    check_incarnation(store, Folder(tmp_path), "s", "one", new=True)  # a worker that is started before the router
    store.reachable = False
    start(store, tmp_path, "one")  # a router that has run before needs no store


def test_the_kind_of_index_is_that_of_a_new_stream_and_no_restart_changes_it(tmp_path: Path) -> None:
    store, storage = MemoryStore(), Folder(tmp_path)
    ensure_first_version(store, storage, SETTINGS, FirstIndex("grid", 4), 0.0, "one")
    assert store.load(0).index.kind == load_version(storage, 0).index.kind == store.state().kind == "grid"
    for kind in (None, "qt-tree", AUTO, "grid"):
        said: list[str] = []
        ensure_first_version(store, storage, SETTINGS, FirstIndex(kind, 4), 0.0, "one", said.append)
        assert store.load(store.state().active.number).index.kind == "grid"
        assert ["is of kind grid" in each for each in said] == ([True] if kind == "qt-tree" else [])


def test_a_planned_stream_begins_with_what_suits_its_history(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    lines = [
        json.dumps({"id": f"o{i}", "t": i, "lon": lon, "lat": lat, "terms": ["a"]})
        for i, (lon, lat) in enumerate(random.normal(20.0, 4.0, (1_500, 2)).tolist())
    ]
    history, few = tmp_path / "history.jsonl", tmp_path / "few.jsonl"
    history.write_text("\n".join(lines))
    few.write_text("\n".join(lines[:99]))
    said: list[str] = []

    def begun(first: FirstIndex, name: str) -> RoutingState:
        store = MemoryStore()
        ensure_first_version(store, Folder(tmp_path / name), SETTINGS, first, 0.0, "one", said.append)
        assert store.load(0).index.kind == store.state().kind
        return store.state()

    state = begun(FirstIndex(AUTO, 4, history), "a")
    assert "the slowest slot of" in state.reason
    assert said == [f"index: {state.reason}"]
    assert "at least 1,000 objects, and there are 99" in begun(FirstIndex(AUTO, 4, few), "b").reason
    assert begun(FirstIndex(AUTO, 4), "c").kind == DEFAULT
    assert begun(FirstIndex("a-grid", 4, history), "d").reason == ""


def test_blocks_of_other_incarnations_are_not_a_slots_own() -> None:
    keys = [block_key(3, 0, 5, "objects"), block_key(4, 0, 0, "marker")]
    for incarnation in ("", "one"):
        assert [key_within(key_of_incarnation(key, incarnation), incarnation) for key in keys] == keys
        assert key_within(key_of_incarnation(keys[0], "other"), incarnation) is None
    assert key_within(key_of_incarnation(keys[0], "one"), "") is None
    assert key_within(keys[0], "one") is None


def test_a_job_notices_that_its_stream_was_begun_anew() -> None:
    store = MemoryStore()
    store.create(FIRST, "other")
    channel = MemoryChannel([MemoryLog() for _ in range(SETTINGS.slots)], MemoryLog(), "one")
    world = SETTINGS.world(MemoryStorage(), channel, MemorySink([MemoryLog()], MemoryLog()))
    job = WorkerJob(Inline(world), store, SETTINGS, "one", warm_up=0.0)
    with pytest.raises(RunError, match=r"another incarnation of the stream \(other, not one\)"):
        job.run()
