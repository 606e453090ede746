"""Items that have moved are forgotten by those that had them, who are not trusted before."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from spatialstream.actors.releases import Releases
from spatialstream.actors.wire import ActorLost


def future(error: Exception | None = None) -> Future[Any]:
    made = Future[Any]()
    made.set_exception(error) if error else made.set_result(None)
    return made


def test_an_actor_that_did_not_let_go_of_what_others_have_is_told_again() -> None:
    told, answers, doubted = list[tuple[str, list[int]]](), list[Future[Any]](), set[str]()

    def asked(actor: Any, items: list[int], seconds: float) -> Future[Any]:
        told.append((actor.name, items))
        return answers.pop(0)

    def doubt(names: Iterable[str]) -> None:
        doubted.clear()
        doubted.update(names)

    releases = Releases(asked, doubt, 0.01)
    actors: list[Any] = [SimpleNamespace(name=name) for name in "abc"]
    before, now = {0: "a", 1: "a", 2: "a", 3: "b"}, {0: "c", 1: "c", 2: "a", 3: "c"}
    answers += [Future(), future()]
    releases.settle(before, now, actors)
    assert told == [("a", [0, 1]), ("b", [3])]

    assert doubted == {"a"}
    told.clear()
    now = {**now, 1: "a"}  # which has come back
    answers += [future(ActorLost("it does not answer"))]
    releases.settle(now, now, actors)
    answers += [future()]
    releases.settle(now, now, actors)
    releases.settle(now, now, actors)
    assert told == [("a", [0])] * 2
    # what it has of 1 is of the time before, and rounds have been done without it since
    assert doubted == {"a"}
    releases.round_done(now)
    assert doubted == set()
