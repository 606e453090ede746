"""When items move to other actors: only when the stream is settled, or when their actor has gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spatialstream.actors.engine import ActorEngine
from spatialstream.actors.load import Load
from spatialstream.stream.engine import Engine
from tests.contracts.engines import Processes, TestTasks, engine_of, until

ALL = list(range(6))


def homes(engine: Engine) -> list[str]:
    """The process of each item, and last that of the merge."""
    rows = engine.gather(TestTasks().rows_where, ALL, TestTasks().merged_where)
    assert [row.split()[1] for row in rows[:-1]] == engine.map(TestTasks().where, ALL)
    return [row.split()[1] for row in rows]


def pids(engine: ActorEngine, executor: str) -> set[str]:
    return {str(actor.pid) for actor in engine.observed() if actor.executor == executor}


def test_items_stay_where_they_are() -> None:
    with engine_of(Processes(3)) as engine:
        before, moves = homes(engine), engine.moves
        for _ in range(3):
            assert homes(engine) == before
        assert engine.moves == moves
        assert len(set(before)) == 3
        assert sum(engine.held().values()) == len(engine.slots()) == len(ALL)


def test_turns_do_not_ask_for_what_stays() -> None:
    asked = list[str]()

    class Slow(Processes):
        def __getattribute__(self, name: str) -> Any:
            asked.append(name)
            return super().__getattribute__(name)

    with engine_of(Slow(2)) as engine:
        homes(engine)
        asked.clear()
        homes(engine)
        assert engine.is_near
        assert not {"host", "count"} & set(asked)


def test_a_new_actor_gets_items_when_the_stream_is_settled() -> None:
    launcher = Processes(3)
    with engine_of(launcher) as engine:
        before = homes(engine)
        gone = launcher.running[0]
        gone.kill()
        until(lambda: len(engine.observed()) == 3 and gone.pid not in [actor.pid for actor in engine.observed()])
        after = homes(engine)
        assert str(gone.pid) not in after
        for old, new in zip(before, after, strict=True):
            assert new == old or old == str(gone.pid)
        engine.settled()
        assert len(set(homes(engine))) == 3


def test_executors_that_are_to_go_are_emptied_when_the_stream_is_settled() -> None:
    with engine_of(Processes(4, executors=2)) as engine:
        before, leaving = homes(engine), pids(engine, "1")
        assert leaving & set(before)
        assert not engine.retire(["1"])
        assert homes(engine) == before
        assert not engine.retire(["1"])
        engine.settled()
        assert engine.retire(["1"])
        assert not leaving & set(homes(engine))
        for actor in engine.observed():
            if actor.executor == "0":
                break
        assert engine.map(TestTasks(words=(("a",),)).lines, [0]) == ["a"]

        engine.retire([])  # they may stay after all
        engine.settled()
        assert leaving & set(homes(engine))


def test_executors_that_are_to_go_do_nothing_that_others_can_do() -> None:
    with engine_of(Processes(4, executors=2)) as engine:
        until(lambda: len(engine.observed()) == 4)
        assert engine.retire(["1"])
        done = engine.map(TestTasks().where, ALL, anywhere=True)
        assert set(done) <= pids(engine, "0")
        engine.retire([])
        assert set(engine.map(TestTasks().where, ALL, anywhere=True)) & pids(engine, "1")


def test_an_executor_is_not_free_while_it_does_something(tmp_path: Path) -> None:
    task = TestTasks(folder=str(tmp_path), item=0)
    with engine_of(Processes(2, executors=2)) as engine, ThreadPoolExecutor(1) as pool:
        until(lambda: len(engine.observed()) == 2)
        done = pool.submit(engine.map, task.wait, [0, 1], anywhere=True)
        until((tmp_path / "waiting-0").exists)
        working = int((tmp_path / "waiting-0").read_text())
        (executor,) = [actor.executor for actor in engine.observed() if actor.pid == working]
        assert not engine.retire([executor])
        (tmp_path / "go").touch()
        done.result()
        assert engine.retire([executor])


def test_executors_keep_what_they_have_while_there_are_no_others() -> None:
    with engine_of(Processes(2)) as engine:
        before = homes(engine)
        assert not engine.retire(["0"])
        engine.settled()
        assert set(homes(engine)) == set(before)
        assert not engine.retire(["0"])


def test_items_would_move_where_work_is_uneven_which_is_looked_at_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with engine_of(Processes(2), even=1.0) as engine:
        before = homes(engine)
        engine.settled()
        assert not engine.would_move
        heavy, light = ({item for item in ALL if before[item] == home} for home in sorted(set(before[:-1])))
        work = dict.fromkeys(heavy, 10.0) | dict.fromkeys(light, 0.1)
        monkeypatch.setattr(engine.load, "update", lambda actors: engine.load.lately.update(work))
        assert not engine.would_move, "it was looked at just now"
        until(lambda: engine.would_move)
        assert not engine.unsettled, "that alone is no reason for a checkpoint"
        assert homes(engine) == before
        engine.settled()
        assert homes(engine) != before
        assert not engine.would_move


def test_work_counts_where_it_was_done_and_later_work_counts_more() -> None:
    def actor(name: str, **worked: float) -> Any:
        return SimpleNamespace(name=name, worked={int(item[1:]): seconds for item, seconds in worked.items()})

    load = Load()
    assert load.update([actor("a", _0=2.0), actor("b", _1=1.0)]) == {0: 2.0, 1: 1.0}
    assert load.update([actor("a", _0=2.5), actor("b", _1=1.0)]) == {0: 0.5, 1: 0.0}
    assert load.lately == {0: 1.5, 1: 0.5}
    # 0 is now of b, and a has gone with what it had counted
    assert load.update([actor("b", _1=1.0, _0=3.0)]) == {0: 3.0, 1: 0.0}
    assert load.lately == {0: 3.75, 1: 0.25}
