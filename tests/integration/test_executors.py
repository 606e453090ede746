"""What is told of executors: how many there are, and how much their actors have worked."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

from spatialstream.spark.executors import Executors
from spatialstream.store.memory import MemoryStore


class Actors:
    """An engine of two actors that have worked for some time."""

    def __init__(self) -> None:
        self.worked: dict[str, dict[int, float]] = {"a": {0: 1.0}, "b": {1: 2.0, 2: 3.0}}

    def observed(self) -> list[Any]:
        return [SimpleNamespace(name=name, worked=worked) for name, worked in self.worked.items()]


def _into(told: list[tuple[int, int, float]]) -> Callable[[int, int, float], object]:
    return lambda *each: told.append(each)


def test_what_actors_have_worked_since_the_last_look_is_told(spark: SparkSession) -> None:
    told: list[tuple[int, int, float]] = []
    actors: Any = Actors()
    executors = Executors(spark, "worker", actors, MemoryStore(), 2, _into(told), lambda _: None, 0.0)

    executors.follow()
    actors.worked = {"a": {0: 1.5}, "c": {1: 0.25}}  # b has gone, and c has its slots
    executors.follow()

    assert [worked for _, _, worked in told] == [6.0, 0.75]
