"""What the model knows of counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from spatialstream.model.kind import CONTINUOUS, TEXT, Kind, Route, Wording
from spatialstream.model.selections import Selection


@dataclass(frozen=True, slots=True)
class Number(Selection):
    """Select nothing but the number of matching objects."""

    @classmethod
    def of(cls, k: int, x: float, y: float) -> Self:
        return cls()

    @property
    def columns(self) -> tuple[int, float, float]:
        return 0, 0.0, 0.0


KINDS = (
    Kind(
        *("SCQ", Number, False, Route.REGION, "objects"),
        required=("region", "duration"),
        optional=TEXT,
        rows="count",
        wording=Wording(
            "Count, once", "how many objects are in a region", "How many objects {region}{having}, {back}."
        ),
    ),
    Kind(
        *("CCQ", Number, True, Route.REGION, "counts"),
        required=("region", "window", "step"),
        optional=CONTINUOUS,
        rows="count",
        wording=Wording(
            "Count, continuous",
            "how many objects are in a region, at every step",
            "How many objects{over} {region}{having}, every {every}, {life}.",
            ("step", "steps"),
        ),
        steps=True,
    ),
)
