"""``spatialstream run``: answer the queries of a file over the objects of files."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from spatialstream.cli import dry_run, live
from spatialstream.cli import options as shared
from spatialstream.model.errors import AllRejected, SettingError
from spatialstream.records.reasons import all_rejected, common_reasons, told_reasons

__all__ = ["add_parser", "run_with_progress", "unknown_text"]

_SHOWN_FIELDS = 5
_MOST_LETTERS = 200_000
"""Dead letters that are looked at for their reasons."""


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "run",
        help="answer queries over files of objects",
        description="Merges objects and queries by time and answers every query exactly. Results are JSON Lines under "
        "DIR/results, rejected records under DIR/rejected. After a stop or a kill, the same command resumes the run. "
        "If every object or every query is rejected, the exit status is 4. --objects, --queries and --output are "
        "required, with --dry-run only the first.",
    )
    shared.add_input(parser, required=False)
    shared.add_areas(parser)
    shared.add_layout(parser)
    dry_run.add_dry_run(parser)
    shared.add_time_unit(parser)
    shared.add_space(parser)
    shared.add_terms(parser)
    add = parser.add_argument
    add("--output", type=Path, metavar="DIR", help="folder of results and rejected records")
    add("--slots", type=shared.count, metavar="N", help="worker slots (default: the number of cores, at least 2)")
    shared.add_index(parser)
    add("--leaves", type=shared.count, default=64, metavar="N", help="leaves of the global index (default 64)")
    text = "granularity of retention (default 5m)"
    add("--interval", type=shared.duration, default=300_000, metavar="TIME", help=text)
    text = "how far back snapshot queries see (default: everything)"
    add("--retention", type=shared.duration, metavar="TIME", help=text)
    text = "state of the run: a folder, or s3://bucket/prefix (default OUTPUT/.checkpoint)"
    add("--checkpoint", type=shared.storage("checkpoint"), metavar="DIR|URL", help=text)
    text = "approximate number of records an epoch (default 250000)"
    add("--epoch", type=shared.count, default=250_000, metavar="N", help=text)
    add("--cores", type=shared.count, metavar="N", help="cores to use (default: all)")
    add("--strict", action="store_true", help="stop at the first rejected record, with status 1")
    add("--overwrite", action="store_true", help="delete an earlier run in the same output folder")
    add("--quiet", action="store_true", help="print neither progress nor a summary")
    parser.set_defaults(function=_run)


def _run(options: argparse.Namespace) -> int:
    needed = ("objects",) if options.dry_run else ("objects", "queries", "output")
    missing = next((name for name in needed if not getattr(options, name)), None)
    if missing is not None:
        raise SettingError(missing, f"is required; give --{missing}")
    if options.dry_run:
        return dry_run.show(options, shared.input_files(options, options.objects))
    from spatialstream.spark.run import RunSettings

    slots = {} if options.slots is None else {"slots": options.slots}
    settings = RunSettings(
        tuple(options.objects),
        tuple(options.queries),
        options.output,
        index=options.index,
        leaves=options.leaves,
        interval=options.interval,
        retention=options.retention,
        space=options.space,
        checkpoint=options.checkpoint,
        columns=options.columns,
        layout=shared.layout(options),
        time_unit=options.time_unit,
        rule=shared.term_rule(options),
        strict=options.strict,
        epoch_records=options.epoch,
        cores=options.cores,
        overwrite=options.overwrite,
        **slots,
    )
    files = shared.input_files(options, options.objects, settings.paths.frames)
    shared.tell_missing(options, files, settings.rule)
    queries = tuple(shared.query_files(options, settings.paths.frames))
    summary = run_with_progress(replace(settings, objects=tuple(files), queries=queries), options.quiet)
    if not options.quiet:
        print(_summary_text(summary, options.output), file=sys.stderr)
    if kinds := summary.nothing_left:
        sources = [*(files if "objects" in kinds else []), *(queries if "queries" in kinds else [])]
        reasons = _reasons(options.output / "rejected", sources)
        raise AllRejected("\n  ".join([all_rejected(kinds), *reasons]))
    return 0


def _reasons(folder: Path, files: Iterable[Path] | None = None) -> list[str]:
    """The commonest reasons of the first dead letters in a folder, of those that are of some files; None: of any."""
    sources = None if files is None else {str(path) for path in files}

    def reasons() -> Iterator[str]:
        for path in sorted(folder.glob("*.jsonl")):
            with path.open("rb") as file:
                for line in file:
                    letter = json.loads(line)
                    if sources is None or letter["source"] in sources:
                        yield letter["reason"]

    return told_reasons(common_reasons(islice(reasons(), _MOST_LETTERS)))


def unknown_text(unknown: Mapping[str, int]) -> str:
    """Describe how many objects have which unknown fields; empty if none has any."""
    named = [(name, count) for name, count in unknown.items() if name]
    rest = sum(unknown.values()) - sum(count for _, count in named[:_SHOWN_FIELDS])
    shown = [f"{name!r} in {count:,} objects" for name, count in named[:_SHOWN_FIELDS]]
    return ", ".join([*shown, *([f"others {rest:,} times"] if rest else [])])


def _summary_text(summary: Any, output: Path) -> str:
    rows = ", ".join(f"{count:,} {kind}" for kind, count in sorted(summary.results.items())) or "none"
    lines = [
        f"objects   {summary.objects:,}",
        f"queries   {summary.queries:,}",
        f"results   {rows}  in {output / 'results'}",
        f"rejected  {summary.rejected:,}" + (f"  in {output / 'rejected'}" if summary.rejected else ""),
        *_much_rejected(summary, output),
        *([f"unknown   {told} (fields that are not read)"] if (told := unknown_text(summary.unknown)) else []),
        *([f"repeated  {summary.repeated:,} queries that were registered already"] if summary.repeated else []),
        f"time      {summary.seconds:.1f} s",
    ]
    if not summary.complete:
        lines.append(
            f"stopped   after epoch {summary.epochs_done} of {summary.epochs}; the same command resumes from there"
        )
    return "\n".join(lines)


def _much_rejected(summary: Any, output: Path) -> list[str]:
    """Where more than a tenth is rejected: of what, and why."""
    if not summary.much_rejected or summary.nothing_left:  # then an error says it
        return []
    parts = [f"{rejected:,} of {total:,} {kind}" for kind, (rejected, total) in summary.by_kind.items() if rejected]
    return [f"          {each}" for each in (" and ".join(parts), *_reasons(output / "rejected"))]


def run_with_progress(settings: Any, quiet: bool = False) -> Any:
    """Run with a progress bar; an interrupt or SIGTERM stops after the current epoch, a second one at once."""
    from spatialstream.spark.run import run

    message = "\nspatialstream: finishing the epoch; interrupt again to stop at once"
    with _Bar(quiet) as bar, live.stopping(argparse.Namespace(quiet=quiet), message=message) as stop:
        return run(settings, report=bar.report, stop=stop)


class _Bar:
    """Progress on standard error: a bar on a terminal, otherwise a line for each phase."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._phase = ""
        self._bar: Any = None

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *details: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def report(self, progress: Any) -> None:
        """Show a :class:`spatialstream.spark.run.Progress`."""
        if self._quiet:
            return
        if progress.phase != self._phase:
            self._close()
            self._phase = progress.phase
            if not sys.stderr.isatty():
                print(f"{progress.phase} ...", file=sys.stderr)
                return
            from tqdm import tqdm

            size = progress.phase == "reading"
            self._bar = tqdm(
                total=progress.total,
                desc=progress.phase,
                unit="B" if size else "epoch",
                unit_scale=size,
                bar_format=None if progress.total > 1 else "{desc}",
                leave=False,
            )
        if self._bar is not None:
            self._bar.update(progress.done - self._bar.n)
