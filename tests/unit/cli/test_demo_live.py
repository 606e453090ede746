"""The live demo's feeds and settings: in the order of time, something for every query, no nonsense."""

from __future__ import annotations

import json
import socket

import numpy as np
import pytest

from spatialstream.cli import main
from spatialstream.cli.demo.live import QUERIES, relived
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Query, parse_query
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers

ASKED = [json.loads(line) for line in QUERIES.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def week() -> ObjectBatch:
    """The feeds as they are sent at a speed of 3,600, with two posts a second."""
    return ObjectBatch.concat(list(relived(3_600.0, 2.0, 0)))


def test_both_feeds_are_there_in_the_order_of_time(week: ObjectBatch) -> None:
    assert (np.diff(week.t) >= 0).all()
    ids = week.ids.to_pylist()
    assert len(set(ids)) == len(ids)
    assert sum(not name.startswith("o") for name in ids) == 1_707
    quakes = [week[i] for i, name in enumerate(ids) if not name.startswith("o")]
    assert sum("earthquake" not in each.terms for each in quakes) == 28, "explosions and quarry blasts"
    posts = (week.t[-1] - week.t[0]) / 1000 / 3_600 * 2
    assert len(week) - 1_707 == pytest.approx(posts, abs=2)


def test_the_same_seed_gives_the_same_feeds(week: ObjectBatch) -> None:
    again, other = (ObjectBatch.concat(list(relived(3_600.0, 2.0, seed))) for seed in (0, 1))
    assert (again.x == week.x).all()
    assert (other.x != week.x).any()


def test_every_query_has_answers(week: ObjectBatch) -> None:
    start = int(week.t[0])
    asked = [parse_query({"t": start, **each}, WGS84) for each in ASKED]
    assert all(isinstance(each, Query) and each.lifetime.continuous for each in asked)
    # the windows are those of the day's clock, in which the week passes in less than three minutes
    objects = [week[i] for i in range(len(week))]
    moved = [type(each)(each.id, start + (each.t - start) // 3_600, each.x, each.y, each.terms) for each in objects]
    end = {"type": "CANCEL", "t": moved[-1].t}
    cancelled = [parse_query({"id": each["id"], **end}, WGS84) for each in ASKED]
    rows, refused = answers(moved, [*asked, *cancelled], WGS84)
    assert not refused
    assert {row["query"] for row in rows} == {each["id"] for each in ASKED}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--speed", "0"], "speed: 0"),
        (["--speed", "nan"], "speed: nan"),
        (["--speed", "1e9"], r"speed: 1e\+09"),
        (["--rate", "-1"], "rate: -1"),
        (["--rate", "inf"], "rate: inf"),
        (["--seed", "-1"], "seed: "),
        (["--port", "65536"], "port: 65536"),
        (["--for", "0s"], "for: "),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo-live", *words]) == 2
    assert capsys.readouterr().err.startswith("spatialstream: " + told.replace("\\", ""))


def test_a_port_that_is_taken_is_told_before_anything_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["demo-live", "--port", str(taken.getsockname()[1])]) == 2
    assert "is not available" in capsys.readouterr().err
