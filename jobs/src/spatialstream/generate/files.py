"""Synthetic streams as files of JSON Lines."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from spatialstream.generate.objects import CHUNK, object_batches
from spatialstream.generate.queries import chosen, focuses, query_batch_around
from spatialstream.generate.settings import GenerateSettings
from spatialstream.model.objects import ObjectBatch
from spatialstream.records.encode import object_lines, query_lines

__all__ = ["write_stream"]


def write_stream(
    objects_path: Path | None,
    queries_path: Path | None,
    settings: GenerateSettings,
    progress: Callable[[int], object] = lambda written: None,
) -> None:
    """Write a synthetic stream; the same settings give the same bytes.

    Args:
        objects_path: file of objects, compressed if it ends in ``.gz``; None: not written.
        queries_path: file of queries, likewise.
        settings: what to write.
        progress: is told after each batch of objects how many it had.
    """

    def written(batch: ObjectBatch, file: BinaryIO | None) -> ObjectBatch:
        if file is not None:
            file.write(object_lines(batch, settings.space))
        progress(len(batch))
        return batch

    with _created(objects_path) as file:
        passed = (written(batch, file) for batch in object_batches(settings))
        if queries_path is None:
            for _ in passed:
                pass
        else:
            centres = chosen(passed, focuses(settings))
    if queries_path is not None:
        with _created(queries_path) as file:
            assert file is not None
            queries = query_batch_around(settings, centres)
            for first in range(0, len(queries), CHUNK):
                file.write(query_lines(queries.take(np.arange(first, min(first + CHUNK, len(queries))))))


@contextmanager
def _created(path: Path | None) -> Iterator[BinaryIO | None]:
    if path is None:
        yield None
        return
    with path.open("wb") as plain:
        if path.suffix == ".gz":
            # Neither the name nor the time of writing goes into the file.
            with gzip.GzipFile("", "wb", 6, plain, mtime=0) as packed, io.BufferedWriter(cast(Any, packed)) as file:
                yield file
        else:
            yield plain
