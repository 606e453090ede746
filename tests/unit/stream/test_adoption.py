"""The adoption of a version by the router, step by step."""

from __future__ import annotations

from dataclasses import replace

from spatialstream.stages.turns import ABORT, LOAD, PREPARE
from spatialstream.store.state import RoutingState
from spatialstream.stream.adoption import Adoption

IDLE = RoutingState.created(0, 2, "")
PENDING = IDLE.published(1, 2, 0, "p", {})
EXPORTED = PENDING.acknowledged(1, "exported", [0, 1])
LOADED = EXPORTED.acknowledged(1, "loaded", [0, 1])


def never(number: int) -> bool:
    raise AssertionError(f"version {number} must not be activated")


def test_the_whole_way() -> None:
    start = Adoption(0)
    preparing, controls = start.next(PENDING, never)
    assert controls == ((PREPARE, 1),)
    assert preparing.next(PENDING, never) == (preparing, ())
    assert preparing.next(PENDING.acknowledged(1, "exported", [1]), never) == (preparing, ())
    loading, controls = preparing.next(EXPORTED, never)
    assert controls == ((LOAD, 1),)
    assert loading.next(EXPORTED, never) == (loading, ())
    asked: list[int] = []
    active, controls = loading.next(LOADED, lambda number: not asked.append(number))
    assert (active, controls, asked) == (Adoption(1), (), [1])


def test_what_the_store_refuses_is_asked_for_again() -> None:
    loading = Adoption(0, 1, "p", LOAD)
    assert loading.next(LOADED, lambda number: False) == (loading, ())


def test_an_unreachable_store_changes_nothing() -> None:
    for state in (Adoption(0), Adoption(0, 1, "p", PREPARE), Adoption(0, 1, "p", LOAD)):
        assert state.next(None, never) == (state, ())
        assert not state.wants(None)


def test_a_version_that_is_withdrawn_is_aborted() -> None:
    withdrawn = PENDING.withdrawn(1, "p")
    for stage in (PREPARE, LOAD):
        assert Adoption(0, 1, "p", stage).next(withdrawn, never) == (Adoption(0), ((ABORT, 1),))
    another = withdrawn.published(2, 2, 0, "q", {})
    aborted, controls = Adoption(0, 1, "p", LOAD).next(another, never)
    assert (aborted, controls) == (Adoption(0), ((ABORT, 1),))
    assert aborted.next(another, never)[1] == ((PREPARE, 2),)


def test_an_activation_that_was_not_written_down_is_found() -> None:
    activated = LOADED.activated(1, 7)
    assert Adoption(0, 1, "p", LOAD).next(activated, never) == (Adoption(1), ())


def test_a_proposal_from_another_version_is_left_alone() -> None:
    stale = replace(PENDING, pending=replace(PENDING.pending, base=5))  # type: ignore[type-var]
    assert Adoption(0).next(stale, never) == (Adoption(0), ())
