"""Answering queries from a notebook: DataFrames or files in, :class:`Answers` out."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, desc, first, regexp_replace

from spatialstream.connectors.disk import disk_errors, made
from spatialstream.model.areas import AreaTable, read_areas
from spatialstream.model.errors import AllRejected, RecordError, SettingError
from spatialstream.model.properties.declared import PropertyType
from spatialstream.model.space import WGS84, Space
from spatialstream.model.stored_fields import TEXT, parse_fields
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.model.times import time_unit as unit_of
from spatialstream.model.typed_queries import TypedQuery
from spatialstream.records.area_files import areas_of_file
from spatialstream.records.area_lines import with_areas
from spatialstream.records.layout import InputLayout
from spatialstream.records.reasons import VALUES, all_rejected
from spatialstream.spark.frame_properties import ask_properties, properties_of
from spatialstream.spark.frame_records import object_lines, query_lines
from spatialstream.spark.pandas_records import object_records, query_records
from spatialstream.spark.run import RunSettings, RunSummary, run
from spatialstream.spark.session import used_session

__all__ = ["Answers", "Queries", "RejectedWarning", "answer", "rejected_records", "result_schema"]

Queries = DataFrame | pd.DataFrame | Iterable[Mapping[str, Any] | TypedQuery] | Mapping[str, Any] | TypedQuery
"""Queries as dataclasses or records in their JSON form, or a single one, or a DataFrame with the fields as columns."""


_OF_FIELDS = {
    PropertyType.KEYWORD: "string",
    PropertyType.NUMBER: "double",
    PropertyType.TIME: "bigint",
    PropertyType.BOOLEAN: "boolean",
}


def result_schema(space: Space = WGS84, rule: TermRule = DEFAULT_RULE) -> str:
    """The Spark schema of results in a space: a row has one of ``objects``, ``object`` and ``terms``.

    Objects have the fields that the stream keeps; those that are missing, or that the query does not show, are null.

    ``complete_after`` is null except for a snapshot query that reaches further back than the retention; ``radius``,
    ``corpus`` and the ``score`` of each object are null except for a ranked query.
    """
    first, second = space.axes
    placed = f"struct<id: string, t: bigint, {first}: double, {second}: double"
    for name in rule.fields or ():
        kind = "string" if name == TEXT else _OF_FIELDS[rule.properties.type_of[name]]
        placed += f", `{name.replace('`', '``')}`: {kind}"
    return (
        f"query string, type string, t long, objects array<{placed}, {space.distance_field}: double, score: double>>, "
        f"object {placed}>, terms array<struct<term: string, count: bigint>>, complete_after long, radius double, "
        "corpus long"
    )


Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A file, a folder of files, or several of these."""


class RejectedWarning(UserWarning):
    """Some records were unusable; they are in :attr:`Answers.rejected`."""


class Answers:
    """The result rows of queries, and the records that were rejected.

    Nothing is read before it is used. ``rows`` and ``rejected`` are kept in memory then; for results larger than that
    there are the DataFrames.

    Args:
        dataframe: see the attribute.
        rejected_dataframe: see the attribute.

    Attributes:
        dataframe: the result rows as a Spark DataFrame, in the order of the files; its columns are those of
            :func:`result_schema`.
        rejected_dataframe: the rejected records as a Spark DataFrame: source (``objects`` or ``queries``; for a Spark
            DataFrame with the number of its partition; or the file), line (for a pandas DataFrame: the row, from 1),
            reason and record; ``offset`` too, where the input is a stream.
    """

    def __init__(self, dataframe: DataFrame, rejected_dataframe: DataFrame) -> None:
        self.dataframe, self.rejected_dataframe = dataframe, rejected_dataframe

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The result rows as dictionaries, in the form of the result files; absent fields are left out."""
        return _dictionaries(self.dataframe)

    @cached_property
    def rejected(self) -> list[dict[str, Any]]:
        """The rejected records as dictionaries: ``source``, ``line``, ``reason`` and ``record``."""
        return _dictionaries(self.rejected_dataframe)

    def to_pandas(self) -> pd.DataFrame:
        """The result rows as a pandas DataFrame, with the columns of :attr:`dataframe`."""
        frame: pd.DataFrame = self.dataframe.toPandas()
        return frame

    def __repr__(self) -> str:
        return f"Answers(dataframe={self.dataframe!r})"


def _dictionaries(frame: DataFrame) -> list[dict[str, Any]]:
    return [_without_nulls(row.asDict(recursive=True)) for row in frame.collect()]


def _without_nulls(value: Any) -> Any:
    """A value in which structures have no absent fields: those of another type's rows are null in a frame."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def answer(
    objects: DataFrame | pd.DataFrame | Files,
    queries: Queries,
    *,
    spark: SparkSession | None = None,
    output: Path | str | None = None,
    time_unit: str | None = None,
    areas: Mapping[str, Any] | Path | str | None = None,
    area_id: str | None = None,
    fields: Sequence[str] | None = None,
    **settings: Any,
) -> Answers:
    """Answer queries over objects, exactly as ``spatialstream run`` does over files.

    Values are converted to what they mean, see :mod:`~spatialstream.spark.pandas_records`: whole numbers as ids, floats
    with whole values as timestamps and counts, dates, times and time differences, NumPy's scalars and arrays; NaN is
    absent. A time without a zone is UTC.

    Args:
        objects: columns ``id``, ``t`` (ms, or a time), ``lon``, ``lat`` (``x``, ``y`` in planar spaces) and ``text``,
            or ``terms`` (a list of strings); and the columns of properties. If queries ask of properties and none are
            declared (``rule``), each column whose type is that of a property is one. Or files and folders, as
            ``spatialstream run`` takes them, with the settings ``columns`` and ``layout`` (an
            :class:`~spatialstream.InputLayout`) where they need them.
        queries: queries as dataclasses or as records in their JSON form, or a single one, or a DataFrame with the
            fields as columns.
        spark: the session to use; default: the active one, else a new one on this machine.
        output: folder for results, rejected records and the checkpoint; default: a temporary one, until Python exits.
            With equal data and settings, the same folder gives the same rows again, without doing the work again.
        time_unit: of numeric times, in objects and in queries: ``"s"``, ``"ms"`` or ``"us"``; default: ms, and
            times that look like another unit are rejected.
        areas: the areas that queries name: a GeoJSON FeatureCollection, or its file.
        area_id: the property that has an area's name; None: the feature's own id.
        fields: what rows show of objects beside id, time and place: ``"text"``, and names of properties, or of columns
            that can be properties; None: what ``rule`` says, by default nothing.
        settings: as in :class:`~spatialstream.spark.run.RunSettings`, such as ``space``, ``slots``, ``leaves``.

    Returns:
        The result rows, and the records that were rejected.

    Raises:
        SettingError: a setting is unusable, a column is missing or has an unsuitable type, an area is invalid, or a
            query is of an area that is not among them.
        AllRejected: every object, or every query, was unusable; says why.
        StateError: the output folder belongs to other data or settings, or is damaged.
        RunError: the run failed for another reason.

    Warns:
        RejectedWarning: records were unusable; how many, and the most common reason; three where more than a tenth of
            objects or of queries were.
    """
    if output is None:
        with disk_errors("output"):
            output = Path(tempfile.mkdtemp(prefix="spatialstream-"))
        atexit.register(shutil.rmtree, output, ignore_errors=True)
    # lines are in ms, whatever the unit of the frames; files are not
    known = None if time_unit is None else "ms"
    unit = "ms" if time_unit is None else unit_of(time_unit, "time_unit")
    files = _files(objects)
    if files and time_unit is not None:
        settings["layout"] = replace(settings.get("layout") or InputLayout(), time_unit=unit)
    setup = RunSettings(files or (Path("objects"),), (), Path(output), time_unit=known, **settings)
    setup.validate()
    if not isinstance(queries, DataFrame | pd.DataFrame | Mapping | TypedQuery) and isinstance(queries, Iterable):
        queries = list(queries)
    setup = _with_properties(setup, objects, queries, fields)
    lines = None if files else _object_lines(objects, setup, unit)
    asked_lines = _query_lines(queries, unit)
    with used_session(spark, keep=True) as session:
        with disk_errors("output"):
            folder = setup.paths.frames
            sources = files if lines is None else _keep(lines, folder, "objects")
            asked = _keep(asked_lines, folder, "queries")
            if areas is not None:
                table = _area_table(areas, area_id, setup)
                asked = tuple(with_areas(path, lambda: table, folder) for path in asked)
        setup = replace(setup, objects=sources, queries=asked)
        summary = run(setup, session)
    rows = session.read.schema(result_schema(setup.space, setup.rule)).json(setup.paths.results.as_uri())
    rejected = rejected_records(session, setup.paths.rejected, "source string, line long, reason string, record string")
    rejected = rejected.withColumn("source", regexp_replace("source", _KEPT_NAME, "$1"))
    if kinds := summary.nothing_left:
        told = f"{all_rejected(kinds)}; the records are in {setup.paths.rejected}"
        of_queries = rejected.source.rlike("^queries(-[0-9]+)?$")
        theirs = rejected if len(kinds) > 1 else rejected.filter(of_queries if kinds == ["queries"] else ~of_queries)
        raise AllRejected("\n".join([told, *_reasons(theirs, 3)]))
    if summary.rejected:
        warnings.warn(_told(rejected, summary), RejectedWarning, stacklevel=2)
    return Answers(rows, rejected)


_KEPT_NAME = r"^.*/((objects|queries)(-\d+)?)-[0-9a-f]{16}\.jsonl$"


def rejected_records(session: SparkSession, folder: Path, schema: str) -> DataFrame:
    """The dead letters in a folder."""
    return session.read.schema(schema).json(folder.as_uri())


def _told(rejected: DataFrame, summary: RunSummary) -> str:
    """How many records were rejected, and why most of them were; of many rejected ones more reasons."""
    reasons = "".join(f"; {each}" for each in _reasons(rejected, 3 if summary.much_rejected else 1))
    total = summary.objects + summary.queries + sum(summary.refused.values())
    return f"{summary.rejected} of {total} records were rejected{reasons} (all of them are in .rejected)"


def _reasons(rejected: DataFrame, most: int) -> list[str]:
    """The commonest reasons of dead letters."""
    alike = rejected.groupBy(regexp_replace("reason", VALUES, "").alias("alike"))
    commonest = alike.agg(count("*").alias("number"), first("reason").alias("reason")).orderBy(desc("number"), "alike")
    return [f"{row.number} of them such as: {row.reason}" for row in commonest.head(most)]


def _area_table(areas: Mapping[str, Any] | Path | str, name_from: str | None, setup: RunSettings) -> AreaTable:
    if isinstance(areas, Mapping):
        try:
            return AreaTable(read_areas(areas, name_from, setup.space, setup.rule))
        except RecordError as error:
            raise SettingError("areas", str(error)) from None
    return areas_of_file(areas, name_from, setup.space, setup.rule)


def _files(objects: object) -> tuple[Path, ...]:
    """The files and folders that are meant; none, if it is something else."""
    if isinstance(objects, str | os.PathLike):
        return (Path(objects),)
    several = isinstance(objects, list | tuple) and all(isinstance(each, str | os.PathLike) for each in objects)
    return tuple(map(Path, objects)) if several else ()  # type: ignore[call-overload]


def _with_properties(
    setup: RunSettings, objects: object, queries: Queries, fields: Sequence[str] | None
) -> RunSettings:
    """The settings with the fields that rows show.

    If queries ask of properties, or rows show some, and none are declared, they are those that columns of a frame may
    be.
    """
    rule = setup.rule
    wanted = bool(set(fields or ()) - {TEXT}) or ask_properties(queries)
    if not rule.properties and isinstance(objects, DataFrame | pd.DataFrame) and wanted:
        rule = replace(rule, properties=properties_of(objects, setup.space))
    if fields is not None:
        rule = replace(rule, fields=parse_fields(fields, rule.properties))
    return replace(setup, rule=rule)


def _object_lines(objects: object, setup: RunSettings, unit: str) -> DataFrame | Iterator[bytes]:
    if isinstance(objects, pd.DataFrame):
        return object_records(objects, setup.space, unit=unit, properties=setup.rule.properties)
    if not isinstance(objects, DataFrame):
        raise SettingError(
            "objects", f"is of type {type(objects).__name__}; give a pandas or a Spark DataFrame, or files"
        )
    return object_lines(_at_rest(objects, "objects"), setup.space, unit=unit, properties=setup.rule.properties)


def _query_lines(queries: Queries, unit: str) -> DataFrame | Iterator[bytes]:
    if isinstance(queries, DataFrame):
        return query_lines(_at_rest(queries, "queries"), unit=unit)
    return query_records(queries, unit)


def _at_rest(frame: DataFrame, setting: str) -> DataFrame:
    if frame.isStreaming:
        raise SettingError(setting, "is a streaming DataFrame; pass it to answer_stream(), or give a static one")
    return frame


def _keep(lines: DataFrame | Iterator[bytes], folder: Path, name: str) -> tuple[Path, ...]:
    """Lines as files, whose names contain a hash of their content: equal data give the same files, and the same run."""
    aside = Path(tempfile.mkdtemp(prefix=".aside-", dir=made(folder)))
    try:
        if isinstance(lines, DataFrame):
            parts = aside / "parts"
            lines.select(lines.value.cast("string").alias("value")).write.text(parts.as_uri())
            files = [(f"{name}-{number:05d}", path) for number, path in enumerate(sorted(parts.glob("part-*.txt")))]
        else:
            files = []
        if not files:
            files = [(name, _write(() if isinstance(lines, DataFrame) else lines, aside / "lines"))]
        return tuple(_named(path, folder, part) for part, path in files)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _named(path: Path, folder: Path, name: str) -> Path:
    kept = folder / f"{name}-{_digest(path)[:16]}.jsonl"
    os.utime(path, (0, 0))  # a run knows its files by name, size and time
    path.replace(kept)
    return kept


def _write(lines: Iterable[bytes], path: Path) -> Path:
    with path.open("wb") as file:
        file.writelines(line + b"\n" for line in lines)
    return path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
