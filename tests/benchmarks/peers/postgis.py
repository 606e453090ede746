"""PostGIS: the same objects, queries and score in SQL, in a database cluster of its own.

Words have a GIN index, places (geography, on the sphere) a GiST index; the planner chooses. Time is that of the
backend's process, without the client.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from spatialstream.model.geometry import EARTH_RADIUS_M
from spatialstream.model.queries import Query
from tests.benchmarks.peers.workload import World, query_rows

__all__ = ["Postgis", "cluster", "programs"]

_USER = "postgres"
_TABLE = """
CREATE EXTENSION postgis;
CREATE TABLE objects (row int, lon float8, lat float8, t int8, squares int8, words text[]);
"""
_INDEX = """
ALTER TABLE objects ADD COLUMN place geography(Point, 4326);
UPDATE objects SET place = ST_SetSRID(ST_MakePoint(lon, lat), 4326)::geography;
CREATE INDEX ON objects USING gin (words);
CREATE INDEX ON objects USING gist (place);
VACUUM ANALYZE objects;
"""
_CLOCK = "\\! cat /proc/$BACKEND/stat >>{clock}\n"
_MARK = "--"
_QUERY = """
SELECT row FROM (
  SELECT row, t, d, CASE WHEN d <= {radius} / 2 THEN 1 - 2 * (d / {radius}) ^ 2
                         ELSE 2 * ((d - {radius}) / {radius}) ^ 2 END AS spatial,
         CASE WHEN squares = 0 OR {norm} = 0 THEN 1
              ELSE least(1, dot / (sqrt(squares::float8) * {norm})) END AS textual,
         least(4096 * ({t} - t) / {half_life}, 262144) AS steps
  FROM (
    SELECT row, t, squares,
           2 * {earth} * asin(sqrt(least(1::float8,
             sin((lat - {lat}) * pi() / 360) ^ 2
             + cos(lat * pi() / 180) * cos({lat} * pi() / 180) * sin((lon - {lon}) * pi() / 360) ^ 2))) AS d,
           (SELECT coalesce(sum(w * w), 0)::float8 FROM unnest({words}, {weights}) AS q(word, w)
            WHERE word = ANY (words)) AS dot
    FROM objects
    WHERE words && {words}
      AND ST_DWithin(place, ST_SetSRID(ST_MakePoint({lon}, {lat}), 4326)::geography, {wide}, false)
  ) AS near WHERE d <= {radius}
) AS scored
ORDER BY {alpha} * (1 - spatial) + (2::float8 ^ (steps::float8 / 4096)) * (1 - {alpha}) * (1 - textual), t DESC, row
LIMIT {k};
"""


def programs() -> Path | None:
    """Where PostgreSQL's programs are, if it has PostGIS; None: nowhere."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    shared = Path("/usr/share/postgresql")
    return next((each for each in folders if any(shared.glob(f"{each.parent.name}/extension/postgis.control"))), None)


@contextmanager
def cluster(folder: Path) -> Iterator[Postgis]:
    """A database cluster in a folder, without a port; it is stopped at the end."""
    where = programs()
    if where is None:
        raise FileNotFoundError("PostgreSQL with PostGIS is not there (Debian: postgresql-15-postgis-3)")
    found = Postgis(where, folder)
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        shutil.chown(folder, _USER, _USER)
    data, log = folder / "data", folder / "log"
    found.run("initdb", "-D", str(data), "-U", _USER, "--auth=trust", "--no-sync")
    options = f"-k {folder} -c listen_addresses='' -c fsync=off -c shared_buffers=1GB -c jit=off"
    options += " -c max_parallel_workers_per_gather=0 -c work_mem=64MB -c maintenance_work_mem=256MB"
    found.run("pg_ctl", "-D", str(data), "-l", str(log), "-o", options, "-w", "start")
    try:
        yield found
    finally:
        found.run("pg_ctl", "-D", str(data), "-m", "fast", "-w", "stop")


class Postgis:
    """A running cluster.

    Args:
        where: PostgreSQL's programs.
        folder: of its socket and of files.
    """

    def __init__(self, where: Path, folder: Path) -> None:
        self.where, self.folder = where, folder

    def run(self, program: str, *arguments: str, text: str | None = None) -> str:
        """Run one of PostgreSQL's programs, not as root."""
        command = [str(self.where / program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", _USER, "--", *command]
        done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True, cwd=self.folder)
        return done.stdout

    def sql(self, text: str) -> str:
        """Run SQL, and commands of psql."""
        options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", str(self.folder), "-U", _USER, "-f", "-"]
        return self.run("psql", *options, text=text)

    def index(self, world: World) -> None:
        """Write the objects into a table with its indexes."""
        batch, squares = world.batch, world.squares
        rows = (
            f"{i}\t{float(batch.x[i])!r}\t{float(batch.y[i])!r}\t{batch.t[i]}\t{squares[i]}\t{{{','.join(batch.terms[i])}}}\n"
            for i in range(len(batch))
        )
        self.sql(f"{_TABLE}COPY objects (row, lon, lat, t, squares, words) FROM STDIN;\n{''.join(rows)}\\.\n{_INDEX}")

    def search(self, world: World, queries: Sequence[Query], times: int = 3) -> tuple[float, list[list[int]]]:
        """CPU ms of a query in the fastest of some passes, and rows of each answer."""
        clock = self.folder / "clock"
        asked = "".join(f"\\echo {_MARK}\n{_sql(world, each)}" for each in queries)
        passes = "".join(f"{_CLOCK.format(clock=clock)}{asked}" for _ in range(times)) + _CLOCK.format(clock=clock)
        told = self.sql(f"SELECT pg_backend_pid() AS pid \\gset\n\\setenv BACKEND :pid\n{passes}")
        fields = [line.rpartition(")")[2].split() for line in clock.read_text().splitlines()]
        ticks = [int(each[11]) + int(each[12]) for each in fields]
        spent = min(after - before for before, after in pairwise(ticks))
        clock.unlink()
        found = [[int(row) for row in part.split()] for part in told.split(_MARK)[1:]]
        return 1e3 * spent / os.sysconf("SC_CLK_TCK") / len(queries), found[-len(queries) :]


def _sql(world: World, query: Query) -> str:
    best, by = query_rows(query)
    weights = world.corpus.weights_of(by.words).tolist()
    return _QUERY.format(
        radius=_number(by.radius),
        norm=_number(sum(weight * weight for weight in weights) ** 0.5),
        t=query.t,
        half_life=by.half_life,
        earth=_number(EARTH_RADIUS_M),
        lon=_number(best.x),
        lat=_number(best.y),
        words=f"string_to_array('{' '.join(by.words)}', ' ')",
        weights=f"ARRAY[{','.join(map(str, weights))}]::int8[]",
        wide=_number(by.radius * 1.000001 + 1.0),
        alpha=_number(by.shares[0]),
        k=best.k,
    )


def _number(value: float) -> str:
    return f"'{value!r}'::float8"
