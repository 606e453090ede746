"""The time range of a query: how long it lasts, and for how long an object counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spatialstream.model.arrays import Ints
from spatialstream.model.errors import RecordError
from spatialstream.model.kind import Kind
from spatialstream.model.query_fields import FieldReader, parse_step
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.ranking.scores import LONGEST_LIFE
from spatialstream.model.times import FOREVER, parse_duration

__all__ = ["ENDLESS_HALF_LIFE", "MOST_STEPS", "Lifetime", "endless", "endless_durations", "parse_lifetime"]

MOST_STEPS = 10_000_000
"""Maximum number of steps of a CTQ: each is a row, so one line of input yields about a gigabyte of results at most."""

ENDLESS_HALF_LIFE = 3_600_000
"""Shortest half-life, in ms, of a continuous query without a duration."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The time range of a query, in ms.

    Attributes:
        duration: τ. A snapshot query covers (t-τ, t]; a continuous query is active in [t, t+τ), see :func:`endless`.
        continuous: whether the query is continuous.
        window: for how long an object counts (T; required for a CTQ, optional for a CKQ and a CBQ); None: until the
            query ends.
        step: interval at which a CTQ reports (δ).
    """

    duration: int
    continuous: bool = False
    window: int | None = None
    step: int | None = None


def endless(step: int | None, half_life: int | None = None) -> int:
    """The duration of a continuous query that is given without one, and so is active until it is cancelled.

    A CTQ ends by itself after :data:`MOST_STEPS` steps, and a CBQ after
    :data:`~spatialstream.model.ranking.scores.LONGEST_LIFE` half-lives; with a half-life of less than
    :data:`ENDLESS_HALF_LIFE` it has to have a duration. It is not written down: no duration is the same.
    """
    if half_life is not None and half_life >= ENDLESS_HALF_LIFE:
        return min(FOREVER, half_life * LONGEST_LIFE)
    return FOREVER if step is None else min(FOREVER, step * MOST_STEPS)


def endless_durations(step: Ints, half_life: Ints | None = None) -> Ints:
    """As :func:`endless`, int64[n], of n steps and half-lives of which -1 is none."""
    steps: Ints = np.where((step < 0) | (step > FOREVER // MOST_STEPS), FOREVER, step * MOST_STEPS)
    if half_life is None:
        return steps
    lives = np.minimum(half_life, FOREVER // LONGEST_LIFE + 1) * LONGEST_LIFE
    return np.where(half_life >= ENDLESS_HALF_LIFE, np.minimum(lives, FOREVER), steps)


def parse_lifetime(read: FieldReader, kind: Kind, t: int | None, ranking: Ranking | None) -> Lifetime:
    """Read the fields ``duration``, ``window`` and ``step``.

    Args:
        read: of the query's fields.
        kind: of the query.
        t: its time of issue, in ms; None: it is not known yet.
        ranking: by what it ranks, if it does.
    """
    step = read("step", None, parse_step)
    half_life = ranking.half_life if ranking is not None and kind.continuous else None
    duration = read("duration", endless(step, half_life), parse_duration)
    if {"duration", "between"} <= {*read.present}:
        read.faults.add("duration", "cannot be combined with between; remove one of the two")
    elif ranking is not None and ranking.between is not None:
        first, last = ranking.between
        duration = (last if t is None else t) - first + 1
    if half_life is not None:
        read.faults += _lives(read.record, half_life, duration)
    if step is not None and duration // step > MOST_STEPS:
        read.faults.append(_too_many_steps(read.record, kind, step, duration))
    return Lifetime(duration, kind.continuous, read("window", None, parse_duration, "window"), step)


def _too_many_steps(record: Mapping[str, Any], kind: Kind, step: int, duration: int) -> RecordError:
    problem = f"{record['step']!r} is too short for a duration of {record['duration']!r}: {duration // step} steps"
    least = duration // (MOST_STEPS + 1) + 1
    right = f"a {kind.type} has at most {MOST_STEPS}; give a step of at least {least} ms, or a shorter duration"
    return RecordError("step", f"{problem}, and {right}")


def _lives(record: Mapping[str, Any], half_life: int, duration: int) -> Iterator[RecordError]:
    """What is wrong with the half-life of a continuous query, of which its life has too many."""
    given, most = record["halfLife"], half_life * LONGEST_LIFE
    if record.get("duration") is None and half_life < ENDLESS_HALF_LIFE:
        problem = f"{given!r} is too short for a query without a duration, which lasts {LONGEST_LIFE} half-lives"
        yield RecordError("halfLife", f"{problem}; give at least 1h, or a duration of at most {most} ms")
    elif record.get("duration") is not None and duration > most:
        problem = f"{record['duration']!r} is more than {LONGEST_LIFE} half-lives of {given!r}"
        yield RecordError("duration", f"{problem}; give at most {most} ms, or a longer halfLife")
