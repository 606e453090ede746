"""Lucene 9.11: the same objects, queries and score, in a JVM of its own (``LuceneBest.java``)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spatialstream.model.queries import Query
from tests.benchmarks.peers.workload import World, query_rows

__all__ = ["Lucene", "jars"]

_ROOT = Path(__file__).parents[3]
_PROGRAM = Path(__file__).with_name("LuceneBest.java")
_MEMORY = "-Xmx2g"


def jars() -> Path | None:
    """Where Lucene's archives are (``scripts/peers.sh`` fetches them); None: nowhere."""
    folder = Path(os.environ.get("SPATIALSTREAM_PEERS", _ROOT / ".peers")) / "lucene"
    return folder if any(folder.glob("lucene-core-*.jar")) else None


@dataclass(frozen=True)
class Lucene:
    """An index in a folder.

    Attributes:
        folder: for the index and files.
    """

    folder: Path

    def index(self, world: World, *, features: bool = False) -> tuple[float, int]:
        """Write the objects into an index of one segment: CPU seconds, and bytes of the index.

        Args:
            world: the objects.
            features: whether there is what the way ``plain`` needs besides.
        """
        path, batch = self.folder / "objects.tsv", world.batch
        squares = world.squares
        with path.open("w") as file:
            for i in range(len(batch)):
                said = " ".join(batch.terms[i])
                file.write(f"{float(batch.x[i])!r}\t{float(batch.y[i])!r}\t{batch.t[i]}\t{squares[i]}\t{said}\n")
        seconds, size = self._run(
            "index", str(path), str(self.folder / "index"), "features" if features else "none"
        ).split()
        path.unlink()
        return float(seconds), int(size)

    def search(self, world: World, queries: Sequence[Query], way: str) -> tuple[float, list[list[int]]]:
        """CPU ms of a query, and rows of each answer.

        Args:
            world: what is indexed.
            queries: TkSKQs.
            way: ``exact``, ``function`` or ``plain``, see ``LuceneBest.java``.
        """
        path, results = self.folder / "queries.tsv", self.folder / "results.txt"
        path.write_text("".join(f"{_line(world, each)}\n" for each in queries))
        spent = float(self._run("search", str(self.folder / "index"), str(path), way, str(results)))
        return spent, [[int(row) for row in line.split()] for line in results.read_text().splitlines()]

    def _run(self, *arguments: str) -> str:
        folder = jars()
        if folder is None:
            raise FileNotFoundError("Lucene's archives are not there; scripts/peers.sh fetches them")
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home) / "bin" / "java") if home else "java"
        command = [java, _MEMORY, "-XX:+UseSerialGC", "-cp", f"{folder}/*", str(_PROGRAM), *arguments]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def _line(world: World, query: Query) -> str:
    best, by = query_rows(query)
    weights = world.corpus.weights_of(by.words).tolist()
    words = " ".join(f"{word}:{weight}" for word, weight in zip(by.words, weights, strict=True))
    numbers = best.x, best.y, by.radius, best.k, by.shares[0], by.half_life, query.t
    return "\t".join([*(repr(each) for each in numbers), words])
