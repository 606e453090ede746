"""``make bench``: all benchmarks compared with their target figures; prints a table, writes figures and charts.

``python -m tests.benchmarks [NAME...] [--growth | --no-growth] [--output DIR]``: names are ``decode``, ``index``,
``crq``, ``polygons``, ``where``, ``pairs``, ``ckq_ctq``, ``settling``, ``segment``, ``best``, ``fields``, ``asked``,
``signatures``, ``gateway``, ``pipeline``, ``actors``, ``words``, ``limits``, ``scale``, ``rebalance``, ``live``; all
of them by default. ``soak`` takes an hour, and runs only if it is named. Benchmarks run one after the other, each in
its own process, and so do the curves (``growth-*.svg``) of those that have any. If one fails, the others still run, and
the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.growth import CURVES, Chart, draw

NAMES = (
    "decode",
    "index",
    "crq",
    "polygons",
    "where",
    "pairs",
    "ckq_ctq",
    "settling",
    "segment",
    "best",
    "fields",
    "asked",
    "signatures",
    "gateway",
    "pipeline",
    "actors",
    "words",
    "limits",
    "scale",
    "rebalance",
    "live",
)
LONG = ("soak",)
"""Benchmarks that run only if they are named."""
DRAWING = ("rebalance", "live", "soak")
"""Benchmarks that draw their own charts."""


def in_process(module: str, expression: str) -> Any:
    """Evaluate an expression with a JSON-serializable value in a new process, so that none inherits another's memory.

    Raises:
        CalledProcessError: the process failed, after printing the reason.
    """
    code = (
        "import dataclasses, importlib, json\n"
        f"module = importlib.import_module('tests.benchmarks.{module}')\n"
        f"value = {expression}\n"
        "print('\\n' + json.dumps(value, default=dataclasses.asdict))"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def lower_is_better(row: dict[str, Any]) -> bool:
    return row["unit"] in ("us", "µs", "ms", "s", "bytes", "bytes/object", "times")


def verdict(row: dict[str, Any]) -> str:
    floor = row.get("floor")
    if not floor:
        return ""
    reached = row["value"] <= floor if lower_is_better(row) else row["value"] >= floor
    sign = "<=" if lower_is_better(row) else ">="
    return f"{'reached' if reached else 'NOT reached'}: {sign} {floor:,.4g}"


def show(name: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{name}")
    for row in rows:
        note = f"   {row['note']}" if row.get("note") else ""
        print(f"  {row['name']:<78} {row['value']:>15,.1f} {row['unit']:<14} {verdict(row)}{note}", flush=True)


def chart(path: Path, results: dict[str, list[dict[str, Any]]]) -> None:
    """Chart of every figure that has a floor, as a multiple of the floor (above 1 is better)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = []
    for rows in results.values():
        for row in rows:
            if row.get("floor"):
                ratio = row["floor"] / row["value"] if lower_is_better(row) else row["value"] / row["floor"]
                bars.append((row["name"].strip(), ratio))
    if not bars:
        return
    figure, axes = pyplot.subplots(figsize=(11, 1.2 + 0.33 * len(bars)), layout="constrained")
    names, ratios = [name for name, _ in bars], [ratio for _, ratio in bars]
    colours = ["#2a7f62" if ratio >= 1 else "#b5482a" for ratio in ratios]
    axes.barh(range(len(bars)), ratios, color=colours, height=0.7)
    axes.set_yticks(range(len(bars)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1.0, color="#444444", linewidth=1)
    axes.set_xlabel("times better than the floor (logarithmic)")
    for place, ratio in enumerate(ratios):
        axes.text(ratio, place, f" {ratio:.2g}x", va="center", fontsize=8)
    figure.savefig(path)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default: all; or {', '.join(LONG)}"
    )
    parser.add_argument(
        "--growth", action=argparse.BooleanOptionalAction, default=True, help="draw how figures grow; on by default"
    )
    parser.add_argument("--figures", action=argparse.BooleanOptionalAction, default=True, help="measure the tables")
    parser.add_argument("--output", type=Path, default=Path("bench-output"), help="where figures and charts go")
    options = parser.parse_args()
    if unknown := set(options.names) - {*NAMES, *LONG}:
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join((*NAMES, *LONG))}")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    options.output.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[dict[str, Any]]] = {}
    failed = []
    for name in options.names or NAMES:
        try:
            if options.figures:
                output = repr(str(options.output)) if name in DRAWING else ""
                results[name] = in_process(f"bench_{name}", f"module.run({output})")
                show(name, results[name])
                (options.output / "figures.json").write_text(json.dumps(results, indent=1))
            if options.growth and name in CURVES:
                grow(name, options.output)
        except subprocess.CalledProcessError:
            failed.append(name)
    if results:
        chart(options.output / "floors.svg", results)
    print(f"\nfigures and charts: {options.output}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def grow(name: str, output: Path) -> None:
    """Measure and draw the curves of one benchmark, and save their points."""
    for each in in_process("growth", f"list(module.CURVES[{name!r}]())"):
        drawn = Chart(**each)
        draw(drawn, output / f"growth-{drawn.name}.svg")
        (output / f"growth-{drawn.name}.json").write_text(json.dumps(each, indent=1))
        print(f"  {output / f'growth-{drawn.name}.svg'}: {drawn.title}, by {drawn.x}", flush=True)


if __name__ == "__main__":
    main()
