"""Make the earthquakes of `spatialstream demo` from the feed in vega-datasets; see the README beside them.

Usage: python scripts/earthquakes.py path/to/earthquakes.json jobs/src/spatialstream/cli/demo/earthquakes.jsonl
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

BEARING = re.compile(r"\d+(\.\d+)?\s?km [NESW]{1,3} of ")
"""How most places of the feed begin: "4km W of Castaic, CA"."""


def convert(feature: dict[str, Any]) -> dict[str, Any]:
    """One event of the feed as an object: what its text is made of is told in the README beside it."""
    event = feature["properties"]
    longitude, latitude, depth = feature["geometry"]["coordinates"]
    place = BEARING.sub("", event["place"], count=1)
    kind = event["type"]
    return {
        "id": feature["id"],
        "t": event["time"],
        "lon": longitude,
        "lat": latitude,
        "text": place if kind == "earthquake" else f"{kind}, {place}",
        "title": event["title"],
        "type": kind,
        "magnitude": event["mag"],
        "depth_km": depth,
    }


def main(source: str, target: str) -> None:
    """Convert the feed at ``source``, in order of time."""
    features = json.loads(Path(source).read_text(encoding="utf-8"))["features"]
    objects = sorted(map(convert, features), key=lambda record: (record["t"], record["id"]))
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in objects)
    Path(target).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
