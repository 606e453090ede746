"""``--dry-run``: how the first objects of files would be read, without reading on, sending or writing anything."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from spatialstream.cli import options as shared
from spatialstream.records.preview import Preview, preview

__all__ = ["add_dry_run", "show"]

_SHOWN = 3


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Add ``--dry-run``."""
    text = "show how the first objects of the files would be read, and which columns would not, and end"
    parser.add_argument("--dry-run", action="store_true", help=text)


def show(options: argparse.Namespace, files: Iterable[Path]) -> int:
    """Print a look at each file of objects.

    Raises:
        SettingError: one of them cannot be read, or lacks a column.
    """
    layout, rule = shared.layout(options), shared.term_rule(options)
    files = list(files)
    shared.tell_missing(options, files, rule)
    for path in files:
        found = preview(path, options.columns, layout, options.space, rule, options.time_unit, _SHOWN)
        print("\n".join(_lines(found)))
    return 0


def _lines(found: Preview) -> Iterator[str]:
    yield f"{found.source}: {found.form}"
    if found.guesses:
        yield f"guessed   {'; '.join(found.guesses)}"
    if found.columns:
        yield f"read      {', '.join(f'{field} from {column}' for field, column in found.columns.items())}"
    if found.unused:
        yield f"not read  {', '.join(found.unused)}"
    for each in found.objects:
        yield f"object    {json.dumps(each, ensure_ascii=False)}"
    if found.refused:
        yield f"rejected  {len(found.refused):,} of the first {found.read:,} records:"
    for line, reason in found.refused[:_SHOWN]:
        yield f"          {line}: {reason}"
