"""The same run from a notebook: DataFrames in, a DataFrame out."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import struct, to_json

from spatialstream.model.space import WGS84, Space
from spatialstream.pipeline.run import RunSettings, run
from spatialstream.pipeline.session import embedded_session

__all__ = ["answer", "result_schema"]


def result_schema(space: Space = WGS84) -> str:
    """The Spark schema of results in a space: a row has one of ``objects``, ``object`` and ``terms``."""
    first, second = space.axes
    placed = f"struct<id: string, t: bigint, {first}: double, {second}: double"
    return (
        f"query string, type string, t long, objects array<{placed}, {space.distance_field}: double>>, "
        f"object {placed}>, terms array<struct<term: string, count: bigint>>"
    )


def answer(
    objects: DataFrame | pd.DataFrame,
    queries: DataFrame | pd.DataFrame | Iterable[Mapping[str, Any]],
    *,
    spark: SparkSession | None = None,
    output: Path | str | None = None,
    **settings: Any,
) -> DataFrame:
    """Answer queries over objects, exactly as ``spatialstream run`` does over files.

    Args:
        objects: columns ``id``, ``t`` (ms or timestamp), ``lon``, ``lat`` (``x``, ``y`` in planar spaces) and ``text``,
        or
            ``terms`` (a list of strings).
        queries: records in the JSON form of queries, or a DataFrame with such columns.
        spark: the session to use; default: the active one, else a new one for this machine.
        output: folder for results, rejected records and the checkpoint; default: a temporary one, until Python ends.
        settings: as in :class:`~spatialstream.pipeline.run.RunSettings`, such as ``space``, ``slots``, ``leaves``.

    Returns:
        The result rows, see :func:`result_schema`; their order is that of the files.

    Raises:
        SettingError: a setting is unusable.
    """
    session = spark or SparkSession.getActiveSession() or embedded_session("spatialstream")
    folder = Path(tempfile.mkdtemp(prefix="spatialstream-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    frame = session.createDataFrame(objects) if isinstance(objects, pd.DataFrame) else objects
    frame.write.parquet((folder / "objects").as_uri())
    files = sorted((folder / "objects").glob("*.parquet"))
    setup = RunSettings(tuple(files), (_write_queries(queries, folder),), Path(output or folder / "output"), **settings)
    run(setup, session)
    return session.read.schema(result_schema(setup.space)).json(setup.paths.results.as_uri())


def _write_queries(queries: DataFrame | pd.DataFrame | Iterable[Mapping[str, Any]], folder: Path) -> Path:
    path = folder / "queries.jsonl"
    with path.open("w", encoding="utf-8") as file:
        if isinstance(queries, DataFrame):
            for row in queries.select(to_json(struct("*")).alias("line")).toLocalIterator():
                file.write(f"{row.line}\n")
        elif isinstance(queries, pd.DataFrame):
            file.write(queries.to_json(orient="records", lines=True))
        else:
            for record in queries:
                file.write(json.dumps(dict(record), ensure_ascii=False) + "\n")
    return path
