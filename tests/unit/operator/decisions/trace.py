"""The load of a day, synthesised: not recorded from a real stream, but with what such streams have.

A daily swing with its peak in the evening, an hour without input at night, noise of 8 %, three bursts, and a hot spot
that wanders with the daylight and gets hotter in the bursts. A row each five minutes. ``python -m
tests.unit.operator.decisions.trace`` writes ``load_trace.csv``, which a test compares with this.
"""

import csv
import math
import random
from pathlib import Path

COLUMNS = ("minute", "objects_per_second", "hot_place", "heat")
BURSTS = ((7 * 60, 30), (12 * 60 + 20, 15), (20 * 60, 90))  # (minute, minutes)
SILENT = (3 * 60, 4 * 60)


def synthesise(seed: int = 20261121) -> list[tuple[str, ...]]:
    generator, rows = random.Random(seed), []
    for minute in range(0, 24 * 60, 5):
        swing = 1.0 + 0.8 * math.sin((minute / 1440 - 0.5) * 2 * math.pi)
        burst = any(first <= minute < first + length for first, length in BURSTS)
        rate = 400.0 * swing * (3.0 if burst else 1.0) * (1.0 + 0.08 * (2.0 * generator.random() - 1.0))
        rate = 0.0 if SILENT[0] <= minute < SILENT[1] else rate
        place = minute // 90 % 16 * 3
        heat = (60.0 if burst else 18.0) * (1.0 + 0.2 * generator.random())
        rows.append((str(minute), f"{rate:.1f}", str(place), f"{heat:.1f}"))
    return rows


if __name__ == "__main__":
    with (Path(__file__).parent / "load_trace.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *synthesise()])
