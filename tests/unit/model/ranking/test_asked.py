"""What a ranked query asks for: its record, its column, and what is said of an unusable one."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from spatialstream import CBQ, SBQ, RecordError
from spatialstream.model.errors import SpatialStreamError
from spatialstream.model.lifetimes import endless, endless_durations
from spatialstream.model.parsed_queries import packed, unpacked
from spatialstream.model.queries import Best, Lifetime, Query, QueryBatch, parse_query
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.regions import Circle
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.model.times import FOREVER
from spatialstream.records.decode_queries import decode_queries
from spatialstream.records.encode import query_lines

RANKING = TermRule(ranking=True)
PLANE = Space.planar(0.0, 0.0, 30.0, 40.0)


def record(**changes: Any) -> dict[str, Any]:
    given = {
        "id": "q",
        "type": "SBQ",
        "t": 1_000,
        "at": [1, 2],
        "k": 3,
        "words": ["Flood river", "flood"],
        "radius": 5.0,
    }
    return {name: value for name, value in (given | {"halfLife": "1s"} | changes).items() if value is not None}


def parsed(space: Space = PLANE, **changes: Any) -> Query:
    query = parse_query(record(**changes), space, RANKING)
    assert isinstance(query, Query)
    return query


def test_a_query_has_its_parts_and_their_defaults() -> None:
    query = parsed()
    by = Ranking(("flood", "river"), 5.0, 4, 1_000, None, (0.2, 0.0, 0.8))
    assert query.selection == Best(1.0, 2.0, 3, by)
    assert query.predicate.region == Circle(1.0, 2.0, 20.0)
    assert query.lifetime.duration == FOREVER
    assert parsed(between=[500, 900], halfLife=None).lifetime.duration == 501


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"duration": "1h", "keywords": ["fire"], "weights": {"space": 1}},
        {"any": [["a"], ["b"]], "none": ["c"], "expansions": 1, "weighting": "static"},
        {
            "halfLife": None,
            "between": [0, "1970-01-01T00:00:00.500Z"],
            "weights": {"space": 0.5, "time": 0.5, "text": 0},
        },
    ],
)
def test_a_query_is_the_same_as_a_record_a_row_and_a_message(changes: dict[str, Any]) -> None:
    query = parsed(**changes)
    assert parse_query(query.to_record(), PLANE, RANKING) == query
    batch = QueryBatch.of([query, query])
    assert [batch[0], QueryBatch.from_arrow(batch.to_arrow())[1]] == [query, query]
    assert unpacked(packed(query)) == query


def test_words_that_are_repeated_weigh_more_where_occurrences_are_counted() -> None:
    counting = replace(RANKING, counts=True)
    query = parse_query(record(words=["Flood river", "flood", "flood " * 8, "dam"]), PLANE, counting)
    assert isinstance(query, Query)
    by = query.selection.ranking
    assert by is not None
    assert (by.words, by.counts) == (("dam", "flood", "river"), (1, 7, 1))
    assert by.weighed(np.array([5, 3, 2])).tolist() == [5, 21, 2]
    assert Ranking.of_text(by.text) == by
    assert Ranking.of_text(replace(by, weights=(5, 21, 2)).text) == replace(by, weights=(5, 21, 2))
    assert parse_query(query.to_record(), PLANE, counting) == query
    assert unpacked(packed(query)) == query
    batch = QueryBatch.of([query])
    assert QueryBatch.from_arrow(batch.to_arrow())[0] == query
    (line,) = bytes(query_lines(batch)).splitlines()
    assert parse_query(json.loads(line), PLANE, counting) == query


def test_words_that_are_repeated_say_nothing_where_occurrences_are_not_counted() -> None:
    assert parsed(words=["flood", "river"]) == parsed(words=["flood river", "flood", "flood"])
    once = parse_query(record(words=["flood", "river"]), PLANE, replace(RANKING, counts=True))
    assert once == parsed(words=["flood", "river"]), "a word that is given once weighs the same in both"


def test_an_interval_is_compared_with_the_time_when_that_is_known() -> None:
    given = record(halfLife=None, between=[500, 900], t=None)
    query = parse_query(given, PLANE, RANKING, timed=False)
    assert isinstance(query, Query)
    assert query.at(1_000) == parsed(halfLife=None, between=[500, 900])
    assert query.at(900).lifetime.duration == 401
    with pytest.raises(RecordError, match=r"^between: 900 is after the query's t; give at most 899$"):
        query.at(899)
    assert unpacked(packed(query)).at(1_000) == query.at(1_000)
    with pytest.raises(RecordError) as raised:
        parse_query(given, PLANE, RANKING)
    assert str(raised.value) == "t: is required; give milliseconds or ISO 8601", "and nothing of the interval"
    with pytest.raises(RecordError) as raised:
        parse_query(record(halfLife=None, between=[500, 900], t="soon"), PLANE, RANKING)
    assert "between" not in str(raised.value)


def test_a_class_takes_an_interval_without_a_time() -> None:
    query = SBQ(at=(1, 2), k=1, words=["flood"], radius=1.0, between=[500, 900])
    assert query.to_record()["between"] == [500, 900]
    with pytest.raises(RecordError, match=r"^between: 900 is after the query's t"):
        SBQ(at=(1, 2), k=1, words=["flood"], radius=1.0, between=[500, 900], t=899)


def test_batches_without_ranked_queries_have_no_column_for_them() -> None:
    plain = parse_query({"id": "q", "type": "SKQ", "t": 0, "at": [1, 2], "k": 1, "duration": 1}, PLANE)
    assert "ranking" not in QueryBatch.of([plain]).to_arrow().schema.names
    assert "ranking" in QueryBatch.of([plain, parsed()]).to_arrow().schema.names


def test_the_decoder_reads_what_the_parser_does() -> None:
    lines = b'{"id": "a", "type": "SRQ", "t": 1, "region": {"box": [0, 0, 1, 1]}, "duration": 1}\n'
    lines += str(record()).replace("'", '"').encode() + b"\n"
    decoded = decode_queries(lines, 1, PLANE, RANKING)
    assert [decoded.batch[i].id for i in range(2)] == ["a", "q"]
    assert decoded.batch[1] == parsed()


def test_times_of_another_unit_are_meant_in_between_too() -> None:
    line = str(record(t=10, halfLife=None, between=[1, 2])).replace("'", '"').encode()
    query = decode_queries(line, 1, PLANE, RANKING, "s").batch[0]
    assert isinstance(query, Query)
    assert query.selection.ranking is not None
    assert (query.t, query.selection.ranking.between) == (10_000, (1_000, 2_000))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"halfLife": None}, "halfLife: give either halfLife or between; neither is there"),
        ({"between": [0, 1]}, "halfLife: give either halfLife or between; both are there"),
        ({"halfLife": 0}, "halfLife: 0 is out of range; give 1 ms to 2251799813685248 ms"),
        ({"halfLife": "soon"}, "halfLife: 'soon' is not a duration"),
        ({"halfLife": None, "between": [5]}, "between: must be a list of 2 times"),
        ({"halfLife": None, "between": [5, 5]}, "between: 5 is not before 5; give the earlier time first"),
        ({"halfLife": None, "between": [5, 1_001]}, "between: 1001 is after the query's t; give at most 1000"),
        (
            {"halfLife": None, "between": [5, 6], "duration": "1h"},
            "duration: cannot be combined with between; remove one of the two",
        ),
        ({"weights": {"space": -0.1}}, "weights.space: -0.1 is out of range; give 0 to 1"),
        ({"weights": {"space": "all"}}, "weights.space: 'all' is not a number"),
        ({"weights": {"space": 0.5, "text": 0.5}}, 'weights: must be an object with "space"'),
        ({"weights": 0.5}, 'weights: must be an object with "space"'),
        (
            {"halfLife": None, "between": [5, 6], "weights": {"space": 0.5}},
            'weights: must be an object with "space", "time", "text"',
        ),
        (
            {"halfLife": None, "between": [5, 6], "weights": {"space": 0.5, "time": 0.3, "text": 0.3}},
            "weights: have the sum 1.1; it must be 1",
        ),
        ({"radius": 0}, "radius: 0 is out of range; it must be greater than 0"),
        ({"radius": -1}, "radius: -1 is out of range; it must be greater than 0"),
        ({"radius": float("inf")}, "radius: inf is not a finite number"),
        ({"radius": 12.6}, "radius: 4 times 12.6 is beyond the space of 50; give at most 12.5, or fewer expansions"),
        ({"expansions": 0}, "expansions: 0 is out of range; give 1 to 64"),
        ({"expansions": 65}, "expansions: 65 is out of range; give 1 to 64"),
        ({"expansions": 1.5}, "expansions: 1.5 is not an integer"),
        ({"weighting": "some"}, "weighting: 'some' is not one of full, static"),
        ({"words": ["?!"]}, "words: has no term"),
        ({"words": []}, "words: has no term"),
        ({"words": "flood"}, "words: 'flood' is not a list of strings"),
        ({"words": [f"w{i}" for i in range(17)]}, "words: has 17 words; give 1 to 16"),
        ({"words": None}, "words: SBQ requires words"),
        ({"radius": None}, "radius: SBQ requires radius"),
        ({"k": 0}, "k: 0 is out of range"),
        ({"region": {"box": [0, 0, 1, 1]}}, "region: SBQ takes no region; remove it"),
        ({"by": "anna"}, "by: SBQ takes no by; remove it"),
    ],
)
def test_what_is_unusable_is_told(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecordError) as raised:
        parsed(**changes)
    assert str(raised.value).startswith(reason)


def test_a_stream_that_counts_no_words_refuses_them() -> None:
    with pytest.raises(RecordError, match=r"^type: SBQ needs a stream that counts words; start it with --ranking"):
        parse_query(record(), PLANE, DEFAULT_RULE)


def test_other_types_take_none_of_its_fields() -> None:
    with pytest.raises(RecordError, match=r"^words: SRQ takes no words; remove it"):
        parse_query(
            {"id": "q", "type": "SRQ", "t": 0, "region": {"box": [0, 0, 1, 1]}, "duration": 1, "words": ["a"]}, PLANE
        )


def test_a_radius_reaches_at_most_around_the_earth() -> None:
    assert parsed(WGS84, radius=20_015_000.0, expansions=1).predicate.region == Circle(1.0, 2.0, 20_015_000.0)
    with pytest.raises(SpatialStreamError, match=r"beyond the space of 2\.00151e"):
        parsed(WGS84, radius=20_016_000.0, expansions=1)


def test_a_multiple_is_the_least_that_reaches() -> None:
    by = Ranking(("a",), 2.0, 3, 1)
    assert [by.multiple(d) for d in (0.0, 2.0, 2.1, 4.0, 4.1, 99.0, float("inf"))] == [1, 1, 2, 2, 3, 3, 3]


def test_a_query_in_python_is_its_record() -> None:
    query = SBQ(id="q", t=1_000, at=(1, 2), k=3, words=["Flood river"], radius=5.0, between=(0, 10), weights=None)
    assert query.to_record() == {
        **{"type": "SBQ", "id": "q", "t": 1_000, "at": [1, 2], "k": 3, "words": ["Flood river"]},
        **{"radius": 5.0, "between": [0, 10]},
    }


def continuous(**changes: Any) -> dict[str, Any]:
    return record(**{"type": "CBQ", "duration": "1m"} | changes)


def parsed_continuous(**changes: Any) -> Query:
    query = parse_query(continuous(**changes), PLANE, RANKING)
    assert isinstance(query, Query)
    return query


def test_a_continuous_one_has_a_disk_that_does_not_grow() -> None:
    query = parsed_continuous(window="5s", by="anna")
    by = Ranking(("flood", "river"), 5.0, 1, 1_000, None, (0.2, 0.0, 0.8), static=True)
    assert query.selection == Best(1.0, 2.0, 3, by)
    assert query.predicate.region == Circle(1.0, 2.0, 5.0)
    assert (query.type, query.lifetime, query.by) == ("CBQ", Lifetime(60_000, True, 5_000), "anna")
    assert parsed_continuous(radius=50.0).predicate.region == Circle(1.0, 2.0, 50.0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"weights": {"space": 0.5}, "window": "1h", "keywords": ["fire"], "none": ["drill"]},
        {"any": [["a"], ["b"]], "by": "anna"},
        {"duration": None, "halfLife": "1h"},
        {"duration": None, "halfLife": 2_000_000_000_000},
        {"duration": 65_536, "halfLife": 1},
        {"duration": 65_536 * 3_600_000, "halfLife": "1h"},
    ],
)
def test_a_continuous_one_is_the_same_as_a_record_a_row_and_a_line(changes: dict[str, Any]) -> None:
    query = parsed_continuous(**changes)
    batch = QueryBatch.of([query, parsed()])
    assert parse_query(query.to_record(), PLANE, RANKING) == query
    assert QueryBatch.from_arrow(batch.to_arrow())[0] == query
    lines = bytes(query_lines(batch)).decode().splitlines()
    assert [parse_query(json.loads(line), PLANE, RANKING) for line in lines] == [query, parsed()]
    decoded = decode_queries(b"\n".join(line.encode() for line in lines), 1, PLANE, RANKING)
    assert [decoded.batch[i] for i in range(2)] == [query, parsed()]


def test_a_continuous_one_without_a_duration_ends_after_its_half_lives() -> None:
    assert parsed_continuous(duration=None, halfLife="1h").lifetime.duration == 65_536 * 3_600_000
    assert parsed_continuous(duration=None, halfLife=2_000_000_000_000).lifetime.duration == FOREVER
    steps, half_lives = np.array([-1, -1, 7, -1]), np.array([3_600_000, 2_000_000_000_000, -1, 5])
    assert endless_durations(steps, half_lives).tolist() == [65_536 * 3_600_000, FOREVER, endless(7), FOREVER]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"halfLife": None}, "halfLife: CBQ requires halfLife"),
        ({"between": [0, 1]}, "between: CBQ takes no between; remove it"),
        ({"expansions": 2}, "expansions: CBQ takes no expansions; remove it"),
        ({"weighting": "full"}, "weighting: CBQ takes no weighting; remove it"),
        ({"weights": {"space": 0.5, "time": 0.1, "text": 0.4}}, 'weights: must be an object with "space"'),
        ({"radius": 50.1}, "radius: 50.1 is beyond the space of 50; give at most that"),
        ({"step": "1s"}, "step: CBQ takes no step; remove it"),
        (
            {"duration": 65_537_000},
            "duration: 65537000 is more than 65536 half-lives of '1s'; give at most 65536000 ms, or a longer halfLife",
        ),
        (
            {"duration": None, "halfLife": "59m"},
            "halfLife: '59m' is too short for a query without a duration, which lasts 65536 half-lives; "
            "give at least 1h, or a duration of at most 231997440000 ms",
        ),
    ],
)
def test_what_is_unusable_in_a_continuous_one_is_told(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecordError) as raised:
        parsed_continuous(**changes)
    assert str(raised.value).split("; and ")[0].startswith(reason)


def test_weights_of_words_are_part_of_the_text_where_they_are_known() -> None:
    by = Ranking(("a", "b"), 2.0, 1, 5, static=True, weights=(1, 16_384))
    assert Ranking.of_text(by.text) == by
    assert Ranking.of_text(replace(by, weights=()).text) == replace(by, weights=())


def test_a_continuous_one_in_python_is_its_record() -> None:
    query = CBQ(id="q", t=1_000, at=(1, 2), k=3, words=["flood"], radius=5.0, half_life=timedelta(hours=6), window="1d")
    assert query.to_record() == {
        **{"type": "CBQ", "id": "q", "t": 1_000, "at": [1, 2], "k": 3, "words": ["flood"]},
        **{"radius": 5.0, "halfLife": 21_600_000, "window": "1d"},
    }
