"""The command line of the modules that repeat the experiments of another paper."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from spatialstream.kernels import compile_kernels


def parsed(paper: str, figures: Iterable[str]) -> tuple[list[str], float, Path]:
    """The figures that are asked for (none: all), the scale, and the folder for results, which is made.

    The kernels are compiled then, so that no measurement waits for that.

    Args:
        paper: name of the module.
        figures: those that it knows.
    """
    known = list(figures)
    parser = argparse.ArgumentParser(prog=f"python -m tests.benchmarks.paper.{paper}")
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"of {', '.join(known)}; default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies numbers of objects and queries")
    parser.add_argument("--output", type=Path, default=Path("bench-output"), help="where results go")
    options = parser.parse_args()
    if unknown := set(options.figures) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(known)}")
    compile_kernels()
    folder = options.output / f"paper-{paper}"
    folder.mkdir(parents=True, exist_ok=True)
    return options.figures, options.scale, folder
