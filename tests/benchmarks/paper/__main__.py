"""``python -m tests.benchmarks.paper [FIGURE...] [--scale S] [--seeds N] [--output DIR] [--docs]``."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spatialstream.kernels import compile_kernels
from tests.benchmarks.paper import charts, page, verdicts
from tests.benchmarks.paper.counting import WORTH
from tests.benchmarks.paper.engine import Results
from tests.benchmarks.paper.page import Judged
from tests.benchmarks.paper.specs import FIGURES, OWN, Figure

DOCS = Path(__file__).parents[3] / "docs"


def judged(results: Results, figure: Figure) -> Judged:
    """A figure that has been measured."""
    counts = {panel.name: results.panel(panel) for panel in figure.panels}
    findings, said, causes = {}, [], []
    for panel in figure.panels:
        found = counts[panel.name]
        findings[panel.name] = {
            measure: verdicts.judge(_values(found, measure), panel.claims, panel.lower)
            for measure in (panel.measure, *panel.measures)
        }
        said += findings[panel.name][panel.measure]
        worth = WORTH.get(panel.base.kind, {})
        causes += [verdicts.cause(each, found, worth) for each in findings[panel.name][panel.measure]]
    return Judged(figure, counts, findings, verdicts.summary(said, causes))


def _values(counts: page.PanelCounts, measure: str) -> dict[str, dict[float, float]]:
    """series -> x -> value, of the series that have the measure."""
    return {
        series: {x: found[measure] for x, found in points.items()}
        for series, points in counts.items()
        if all(measure in found for found in points.values())
    }


def write(output: Path, results: Results, found: Sequence[Judged], docs: bool) -> None:
    """Verdicts, all numbers, pictures, and the page."""
    folder = output / "paper"
    listed = [
        {"figure": json.loads(each.figure.name), "verdict": each.verdict, "cause": each.cause}
        for each in found
        if each.figure.name not in OWN
    ]
    (output / "paper.json").write_text(json.dumps(listed, indent=1, ensure_ascii=False))
    numbers = {
        each.figure.name: {
            panel.name: {"by": each.by(panel), "counts": each.counts[panel.name]} for panel in each.figure.panels
        }
        for each in found
    }
    (folder / "results.json").write_text(json.dumps(numbers, indent=1, ensure_ascii=False))
    pq.write_table(pa.Table.from_pylist(results.table()), folder / "points.parquet")
    for each in found:
        values = {panel.name: _values(each.counts[panel.name], panel.measure) for panel in each.figure.panels}
        charts.draw(each.figure, values, folder / f"paper-{each.figure.name}.svg")
        if docs and each.figure.name not in page.TABLES:
            charts.draw(each.figure, values, DOCS / "images" / f"paper-{each.figure.name}.svg")
    text = page.page(found, results.scale, results.seeds)
    (folder / "paper.md").write_text(text)
    if docs:
        (DOCS / "paper.md").write_text(text)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.paper")
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"of {', '.join(FIGURES)}; default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies numbers of objects and queries")
    parser.add_argument("--seeds", type=int, default=2, help="samples that each point is measured on")
    parser.add_argument("--output", type=Path, default=Path("bench-output"), help="where results go")
    parser.add_argument("--docs", action="store_true", help="write docs/paper.md and its pictures too")
    options = parser.parse_args(arguments)
    if unknown := set(options.figures) - set(FIGURES):
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(FIGURES)}")
    figures = [FIGURES[name] for name in options.figures or FIGURES]
    began = time.monotonic()
    compile_kernels()
    results = Results(options.output / "paper", options.scale, options.seeds)
    results.fill(figures)
    known = [figure for figure in FIGURES.values() if not results.missing([figure])]  # those of earlier runs too
    if options.docs and len(known) < len(FIGURES):
        parser.error("--docs writes the page of all figures, and not all have been measured: name none, or all")
    found = [judged(results, figure) for figure in known]
    write(options.output, results, found, options.docs)
    for each in found:
        if each.figure in figures:
            print(f"{each.figure.name:>6}  {each.verdict:<10} {each.cause}")
    print(f"{time.monotonic() - began:.0f} s; {options.output / 'paper.json'}, {options.output / 'paper'}")


if __name__ == "__main__":
    main()
