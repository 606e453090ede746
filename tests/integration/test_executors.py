"""What executors have worked, as Spark itself counts it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spatialstream.spark.executors import Executors
from spatialstream.store.memory import MemoryStore


def test_a_driver_is_no_executor_however_long_it_has_been_there(spark: SparkSession) -> None:
    told: list[tuple[int, int, float]] = []
    executors = Executors(spark, MemoryStore(), 2, lambda *each: told.append(each), lambda _: None, 0.0)

    executors.follow()
    spark.range(0, 1000, 1, 2).selectExpr("sum(id)").collect()
    executors.follow()

    assert {worked for _, _, worked in told} == {0.0}
