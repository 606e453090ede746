"""The contract of :class:`~spatialstream.stream.engine.Engine`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.model import errors
from spatialstream.stream.engine import Engine, Inline, StageError
from tests.contracts.engines import TestTasks, world

TEXTS = ["", "a line", "ä 語 🎈", "two\nlines", 'quotes " and \\', "\x00 \x1f \u2028", "x" * 100_000]

RAISED: dict[str, tuple[str, tuple[str, ...], type[Exception]]] = {
    "by a stage": ("ValueError", ("wrong",), StageError),
    "by a stage, of a key": ("KeyError", ("slot",), StageError),
    "by a stage, in many words": ("ValueError", ("ä\n語" * 1000,), StageError),
    "by a stage, in none": ("ValueError", (), StageError),
    "for a setting": ("SettingError", ("slots", "is 0; 1 or more"), errors.SettingError),
    "for a record": ("RecordError", ("region", "ist größer\nals erlaubt"), errors.RecordError),
    "for a state": ("StateError", ("is damaged",), errors.StateError),
    "for what is missing": ("Missing", ("no file of that name",), errors.Missing),
    "for a server": ("Unavailable", ("the broker does not answer",), errors.Unavailable),
    "for a run": ("RunError", ("it went wrong",), errors.RunError),
    "for memory": ("MemoryError", ("too much",), MemoryError),
    "for memory, in no words": ("MemoryError", (), MemoryError),
    "for a disk": ("OSError", ("28", "No space left on device", "/a/file"), OSError),
    "for a file": ("OSError", ("2", "No such file or directory", "/a/file"), FileNotFoundError),
    "for a broken pipe": ("OSError", ("something",), OSError),
}


class EngineContract:
    """Contract tests of engines. Subclasses provide a fixture ``engine``."""

    def test_a_worker_has_the_world_and_some_width(self, engine: Engine) -> None:
        assert engine.world == world()
        assert engine.width >= 1
        engine.check()

    def test_lines_come_in_the_order_of_items(self, engine: Engine) -> None:
        tasks = TestTasks(words=(("a", "b"), (), ("c",), ("d",), (), ("e", "f", "g")))
        for items in ([0, 1, 2, 3, 4, 5], [5, 0, 3], [1], [], range(6), [2, 2, 0]):
            wanted = [line for item in items for line in tasks.words[item]]
            assert engine.map(tasks.lines, items) == wanted
            assert engine.map(tasks.lines, items, anywhere=True) == wanted

    def test_lines_are_any_texts(self, engine: Engine) -> None:
        tasks = TestTasks(words=(tuple(TEXTS), tuple(reversed(TEXTS))))
        assert engine.map(tasks.lines, [0, 1]) == [*TEXTS, *reversed(TEXTS)]

    def test_items_anywhere_are_numbers_texts_or_tuples(self, engine: Engine) -> None:
        assert engine.map(TestTasks().named, ["ä", "b", "a b"], anywhere=True) == ["ä!", "b!", "a b!"]
        parts = [("objects/0", 3, 10), ("queries/1", 0, 2**40)]
        assert engine.map(TestTasks().partitions, parts, anywhere=True) == [f"{part}" for part in parts]

    def test_there_may_be_more_items_than_actors_and_fewer(self, engine: Engine) -> None:
        for count in (1, 2, 5, 40):
            tasks = TestTasks(words=tuple((str(item),) for item in range(count)))
            for anywhere in (False, True):
                assert engine.map(tasks.lines, range(count), anywhere=anywhere) == [str(item) for item in range(count)]

    @pytest.mark.parametrize(
        ("sizes", "rows"),
        [
            (((), (0,), (1,)), 1),
            (((100, 200, 300), (), (5,) * 2000), 1),
            (((100_000_000,), (70_000_000, 3)), 10),
        ],
        ids=["empty", "many", "large"],
    )
    def test_all_rows_come_whatever_their_size(
        self, engine: Engine, sizes: tuple[tuple[int, ...], ...], rows: int
    ) -> None:
        tasks, items = TestTasks(sizes=sizes, rows=rows), range(len(sizes))
        wanted = Inline(world()).gather(tasks.give, items, tasks.sums)
        assert engine.gather(tasks.give, items, tasks.sums) == wanted

    @pytest.mark.parametrize("parts", [range(1), range(3), (2, 0)])
    def test_each_part_gets_the_rows_that_are_for_it(self, engine: Engine, parts: Sequence[int]) -> None:
        sizes = tuple(tuple(1_000_000 * (at % len(parts) + 1) for at in range(12)) for _ in range(5))
        tasks = TestTasks(sizes=sizes, parts=tuple(parts))
        items = range(len(sizes))
        found = engine.gather(tasks.give, items, tasks.sums, parts)
        assert found == Inline(world()).gather(tasks.give, items, tasks.sums, parts)
        at = {part: i for i, part in enumerate(parts)}
        wanted = [f"{item}: {sum(sizes[item][at[part] :: len(parts)])}" for part in parts for item in items]
        assert [line.rpartition(" ")[0] for line in found] == wanted

    def test_what_a_part_raises_comes_and_the_next_gathering_is_whole(self, engine: Engine) -> None:
        tasks = TestTasks(sizes=((80_000_000, 3, 70_000_000), (5, 5, 5)), parts=(0, 1, 2), item=~1, raises="KeyError")
        for _ in range(3):
            with pytest.raises(StageError, match=r"^KeyError"):
                engine.gather(tasks.give, [0, 1], tasks.sums, tasks.parts)
        tasks = replace(tasks, raises="")
        wanted = Inline(world()).gather(tasks.give, [0, 1], tasks.sums, tasks.parts)
        assert engine.gather(tasks.give, [0, 1], tasks.sums, tasks.parts) == wanted

    def test_a_merge_of_nothing(self, engine: Engine) -> None:
        assert engine.gather(TestTasks().give, [], TestTasks().count) == ["0"]
        assert engine.gather(TestTasks().give, [], TestTasks().count, range(3)) == ["0", "0", "0"]

    @pytest.mark.parametrize(("name", "arguments", "kind"), RAISED.values(), ids=RAISED.keys())
    @pytest.mark.parametrize("how", ["map", "anywhere", "rows", "merge"])
    def test_what_a_task_raises_comes_as_itself(
        self, engine: Engine, name: str, arguments: tuple[str, ...], kind: type[Exception], how: str
    ) -> None:
        tasks = TestTasks(
            words=(("a",), ("b", "c"), ("d",)),
            sizes=((3,), (3, 3), (3,)),
            item=-1 if how == "merge" else 1,
            raises=name,
            arguments=arguments,
            at=1,
        )

        def turn(on: Engine) -> Any:
            if how in ("map", "anywhere"):
                return on.map(tasks.lines, range(3), anywhere=how == "anywhere")
            return on.gather(tasks.give, range(3), tasks.sums)

        with pytest.raises(kind) as wanted:
            turn(Inline(world()))
        with pytest.raises(kind) as found:
            turn(engine)
        assert type(found.value) is type(wanted.value)
        assert str(found.value) == str(wanted.value)
        if not isinstance(found.value, StageError):
            assert found.value.args == wanted.value.args
            assert vars(found.value) == vars(wanted.value)
        assert getattr(found.value, "filename", None) == getattr(wanted.value, "filename", None)
        assert engine.map(tasks.lines, [0, 2]) == ["a", "d"]

    def test_an_error_of_very_many_words_is_cut(self, engine: Engine) -> None:
        tasks = TestTasks(words=((),), item=0, raises="ValueError", arguments=("ä" * 1_000_000,))
        with pytest.raises(StageError, match=r"^ValueError: ä{1000}"):
            engine.map(tasks.lines, [0])

    def test_between_turns_it_may_be_told_things(self, engine: Engine) -> None:
        tasks = TestTasks(words=(("a",), ("b",)))
        for tell in (engine.settled, engine.check, engine.cancel):
            tell()
            assert engine.map(tasks.lines, [0, 1]) == ["a", "b"]

    @settings(max_examples=20)
    @given(seed=st.integers(0, 2**32))
    def test_random_turns(self, engine: Engine, seed: int) -> None:
        draw = random.Random(seed)
        count = draw.randrange(1, 12)
        sizes = [[draw.choice([0, 1, 100, 100_000]) for _ in range(draw.randrange(5))] for _ in range(count)]
        words = [[chr(draw.randrange(32, 1000)) for _ in range(draw.randrange(4))] for _ in range(count)]
        tasks = TestTasks(sizes=tuple(map(tuple, sizes)), rows=draw.choice([1, 10]), words=tuple(map(tuple, words)))
        items = draw.sample(range(count), draw.randrange(count + 1))
        inline = Inline(world())
        assert engine.map(tasks.lines, items) == inline.map(tasks.lines, items)
        assert engine.map(tasks.lines, items, anywhere=True) == inline.map(tasks.lines, items)
        assert engine.gather(tasks.give, items, tasks.sums) == inline.gather(tasks.give, items, tasks.sums)
