"""Is this commit as fast as an earlier one? ``python -m tests.benchmarks.compare COMMIT NAME...``
(``make bench-compare COMMIT=... ARGS='crq segment'``).

Machines differ twofold, and one machine by its other work, so a figure of another day says little. Here the benchmarks
of both commits run in turn on this machine, three times, and the best of each is compared. Rows that measure somebody
else's code (STRtree, pyarrow) say how far ratios can be trusted. Floors do not tell what this does: a search may become
ten times as slow and still reach its floor.

The earlier commit is checked out beside this one, into a folder that is removed afterwards, and uses the same packages.
The exit status is 1 if a figure is worse than ``--least`` times the earlier one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.__main__ import lower_is_better

LEAST = 0.95
"""Lowest ratio that is not worse."""

_ERROR = 2
"""File descriptor of the standard error."""

Figures = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows by benchmark, as ``figures.json`` has them."""


@dataclass(frozen=True)
class Ratio:
    """A figure of both commits.

    Attributes:
        name: of the benchmark and the row.
        unit: of both values.
        before, now: the best values.
        ratio: above 1, this commit is better.
    """

    name: str
    unit: str
    before: float
    now: float
    ratio: float


@contextmanager
def checked_out(repository: Path, commit: str) -> Iterator[Path]:
    """A folder with a commit of a repository, for a while."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(repository), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def is_commit(repository: Path, name: str) -> bool:
    """Whether a repository has a commit of this name."""
    command = ["git", "-C", str(repository), "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def measured(tree: Path, names: Sequence[str], output: Path) -> Figures:
    """Run benchmarks of a tree; its own messages go to the standard error.

    Raises:
        CalledProcessError: one failed, or the tree has no benchmark of that name.
    """
    path = os.pathsep.join(str(tree / each) for each in ("jobs/src", "operator/src", "."))
    command = [sys.executable, "-m", "tests.benchmarks", *names, "--no-growth", "--output", str(output)]
    subprocess.run(command, check=True, cwd=tree, env=os.environ | {"PYTHONPATH": path}, stdout=_ERROR)
    figures: Figures = json.loads((output / "figures.json").read_text())
    return figures


def _best(runs: Sequence[Figures]) -> dict[str, tuple[str, float]]:
    """Unit and best value by the names of benchmark and row."""
    best = dict[str, tuple[str, float]]()
    for name, row in ((name, row) for run in runs for name, rows in run.items() for row in rows):
        key, value = f"{name}: {row['name'].strip()}", float(row["value"])
        if key in best:
            value = (min if lower_is_better(dict(row)) else max)(value, best[key][1])
        best[key] = row["unit"], value
    return best


def ratios(before: Sequence[Figures], now: Sequence[Figures]) -> list[Ratio]:
    """The figures that both have, in the order of this commit. A value of 0 cannot be compared, and is left out."""
    earlier, found = _best(before), list[Ratio]()
    for name, (unit, value) in _best(now).items():
        old = earlier.get(name)
        if old is not None and old[0] == unit and old[1] > 0 and value > 0:
            ratio = old[1] / value if lower_is_better({"unit": unit}) else value / old[1]
            found.append(Ratio(name, unit, old[1], value, ratio))
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Compare as the command line says; 1 if a figure is worse."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.compare", description=__doc__)
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument("names", nargs="+", metavar="NAME", help="benchmarks that both commits have, such as crq")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each commit (default: %(default)s)")
    parser.add_argument("--least", type=float, default=LEAST, help="lowest ratio that is not worse (%(default)s)")
    options = parser.parse_args(words)
    here = Path.cwd()
    if not is_commit(here, options.commit):
        parser.error(f"{options.commit!r} is no commit of this repository; give one such as HEAD~10")
    before, now = list[Figures](), list[Figures]()
    with checked_out(here, options.commit) as tree, tempfile.TemporaryDirectory() as output:
        for _ in range(options.rounds):
            for each, where, figures in ((options.commit, tree, before), ("this commit", here, now)):
                try:
                    figures.append(measured(where, options.names, Path(output)))
                except subprocess.CalledProcessError:  # it has printed why
                    parser.exit(2, f"{parser.prog}: the benchmarks of {each} failed\n")
    worse = 0
    for each in ratios(before, now):
        worse += each.ratio < options.least
        mark = "  worse" if each.ratio < options.least else ""
        print(f"{each.name:<90}{each.before:>16,.1f}{each.now:>16,.1f} {each.unit:<14}{each.ratio:6.2f}{mark}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
