"""The Python API: DataFrames in, a DataFrame out."""

from __future__ import annotations

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import spatialstream
from spatialstream.model.errors import SettingError
from spatialstream.model.space import Space

OBJECTS = pd.DataFrame(
    {
        "id": ["a", "b", "c"],
        "t": [1_000, 2_000, 3_000],
        "lon": [13.4, 13.5, 2.35],
        "lat": [52.5, 52.6, 48.85],
        "text": ["Flood in the street", "dry", "flood again"],
    }
)
QUERIES = [
    {
        "id": "berlin",
        "type": "CRQ",
        "t": 0,
        "region": {"box": [13, 52, 14, 53]},
        "keywords": ["flood"],
        "duration": "1h",
    },
    {"id": "near", "type": "SKQ", "t": 5_000, "at": [13.4, 52.5], "k": 2, "duration": "1h"},
    {"id": "top", "type": "STQ", "t": 5_000, "region": {"box": [-180, -90, 180, 90]}, "k": 1, "duration": "1h"},
]


def test_answers_from_pandas(spark: SparkSession) -> None:
    rows = {row.query: row for row in spatialstream.answer(OBJECTS, QUERIES, spark=spark, slots=2).collect()}
    assert rows["berlin"].object.asDict() == {"id": "a", "t": 1_000, "lon": 13.4, "lat": 52.5}
    assert [each.id for each in rows["near"].objects] == ["a", "b"]
    assert rows["near"].objects[0].distance_m == 0.0
    assert [(each.term, each["count"]) for each in rows["top"].terms] == [("flood", 2)]


def test_answers_from_spark_in_a_plane(spark: SparkSession) -> None:
    objects = spark.createDataFrame(OBJECTS.rename(columns={"lon": "x", "lat": "y"}))
    queries = spark.createDataFrame(
        pd.DataFrame([{"id": "q", "type": "SKQ", "t": 9, "at": [0.0, 0.0], "k": 1, "duration": 9}])
    )
    rows = spatialstream.answer(objects, queries, space=Space.planar(0, 0, 100, 100)).collect()
    assert [(row.query, row.objects) for row in rows] == [("q", [])]


def test_an_unusable_setting_is_refused(spark: SparkSession) -> None:
    with pytest.raises(SettingError, match="slots"):
        spatialstream.answer(OBJECTS, QUERIES, spark=spark, slots=0)
