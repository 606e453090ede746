"""A sample of the objects and queries of files, for commands that look at what they have in common."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream.cli import live
from spatialstream.cli import options as shared
from spatialstream.model.errors import AllRejected
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.terms import TermRule
from spatialstream.records.columns import check_fields
from spatialstream.records.files import Kind, decode_chunk, plan
from spatialstream.records.reasons import all_rejected, common_reasons, told_reasons

__all__ = ["sampled"]


def sampled(
    options: argparse.Namespace, rule: TermRule, unit: str = "ms"
) -> tuple[ObjectBatch, QueryBatch, tuple[float, float]]:
    """Read up to ``--sample`` objects, and queries, spread evenly over each file's blocks.

    Args:
        options: with the options of :func:`~spatialstream.cli.options.add_input` and others.
        rule: term extraction, and the properties.
        unit: of times that are numbers.

    Returns:
        Objects, queries, and how many objects and queries of the files each of them stands for.

    Raises:
        AllRejected: every object or every query is invalid; says why.
    """
    files = shared.input_files(options, options.objects)
    objects, of_objects = _sample(files, "objects", options, rule, unit)
    queries, of_queries = _sample(options.queries, "queries", options, rule, unit)
    found = ObjectBatch.concat(objects or [ObjectBatch.of([])]), QueryBatch.concat(queries or [QueryBatch.of([])])
    return *found, (of_objects, of_queries)


def _sample(
    files: list[Path], kind: Kind, options: argparse.Namespace, rule: TermRule, unit: str
) -> tuple[list[Any], float]:
    """The parts of a sample, and how many records each record stands for."""
    parts: list[Any] = []
    refused: list[pa.Array] = []
    room, total = options.sample, 0
    columns = options.columns if kind == "objects" else {}
    check_fields(columns, rule)
    layout = shared.layout(options) if kind == "objects" else None
    chunks = plan(files, columns, kind, space=options.space, layout=layout) if files else []
    for left, chunk in zip(range(len(chunks), 0, -1), chunks, strict=True):
        for decoded in decode_chunk(chunk, kind, options.space, rule, columns, unit):
            total += len(decoded.batch)
            refused.append(decoded.rejected.column("reason"))
            take = min(len(decoded.batch), max(1, room // left))
            if take > 0 and room > 0 and len(decoded.batch):
                parts.append(decoded.batch.take(np.linspace(0, len(decoded.batch) - 1, take).astype(np.int64)))
                room -= take
    _tell_refused(options, kind, total, refused)
    return parts, total / max(sum(map(len, parts)), 1) or 1.0


def _tell_refused(options: argparse.Namespace, kind: Kind, usable: int, refused: Sequence[pa.Array]) -> None:
    """Tell why records are rejected if more than a tenth is.

    Raises:
        AllRejected: none is usable.
    """
    count = sum(map(len, refused))
    if 10 * count <= usable + count:
        return
    reasons = told_reasons(common_reasons(chain.from_iterable(each.to_pylist() for each in refused)))
    if not usable:
        raise AllRejected("\n  ".join([all_rejected([kind]), *reasons]))
    live.say(options, "\n  ".join([f"{count:,} of {usable + count:,} {kind} are rejected", *reasons]))
