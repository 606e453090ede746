"""The oracle against hand-made examples, against other readings of the definitions, and over files."""

import csv
import gzip
import itertools
import json
import math
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.cli.demo import OBJECTS, QUERIES, RULE
from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.geometry import BOX, CIRCLE, contains, distance
from spatialstream.model.kinds import TYPES, QueryType
from spatialstream.model.objects import parse_object
from spatialstream.model.queries import Cancellation, parse_query
from spatialstream.model.regions import Box, Circle, Polygon
from spatialstream.model.space import WGS84, Space
from spatialstream.oracle import answers, check, check_files, read_objects, read_queries, read_rows
from spatialstream.oracle.objects import _containment, _distance
from tests import streams

PLANE = Space.planar(0.0, 0.0, 100.0, 100.0)
ALL = {"box": [0, 0, 100, 100]}


def thing(t, text="", x=0.0, y=0.0, name="o"):
    return parse_object({"id": name, "t": t, "x": x, "y": y, "text": text}, PLANE)


def ask(kind, t, name="q", **fields):
    if kind in ("SRQ", "STQ", "CRQ", "CTQ"):
        fields = {"region": ALL} | fields
    return parse_query({"id": name, "type": kind, "t": t} | fields, PLANE)


def rows(objects, queries, space=PLANE):
    found, refused = answers(objects, queries, space)
    assert refused == []
    return found


# ----------------------------------------------------------------------------------------------------------- snapshots


def test_srq_gives_the_objects_of_the_half_open_past_with_all_keywords_in_order():
    objects = [
        thing(5, "fire", name="too old"),
        thing(6, "fire", name="first"),
        thing(10, "a fire", name="c"),
        thing(10, "Fire!", name="b"),
        thing(10, "water", name="other word"),
        thing(11, "fire", name="too new"),
        thing(8, "fire", x=60, name="elsewhere"),
    ]

    found = rows(objects, [ask("SRQ", 10, duration=5, region={"box": [0, 0, 50, 50]}, keywords=["FIRE"])])

    assert json.dumps(found) == json.dumps(
        [
            {
                "query": "q",
                "type": "SRQ",
                "t": 10,
                "objects": [
                    {"id": "first", "t": 6, "x": 0.0, "y": 0.0},
                    {"id": "b", "t": 10, "x": 0.0, "y": 0.0},
                    {"id": "c", "t": 10, "x": 0.0, "y": 0.0},
                ],
            }
        ]
    )


def test_without_a_duration_a_query_lasts_until_it_is_cancelled():
    objects = [thing(t) for t in (5, 10, 10**15, 10**15 + 1)]
    found = rows(objects, [ask("CRQ", 10), Cancellation("q", 10**15 + 1)])
    assert [row["t"] for row in found] == [10, 10**15]


def test_a_query_that_comes_again_is_answered_once():
    first = ask("CRQ", 10, keywords=["a", "b"])
    found, refused = answers([thing(11, "a b")], [first, ask("CRQ", 10, keywords=["b a"]), first], WGS84)
    assert len(found) == 1
    assert not refused
    _, refused = answers([thing(11, "a b")], [first, ask("CRQ", 10, keywords=["b", "a"], by="somebody else")], WGS84)
    assert not refused
    _, refused = answers([thing(11, "a b")], [first, ask("CRQ", 10, keywords=["b"])], WGS84)
    assert [position for position, _ in refused] == [1]


def test_a_snapshot_of_zero_duration_answers_with_nothing():
    assert rows([thing(10)], [ask("SRQ", 10, duration=0)]) == [{"query": "q", "type": "SRQ", "t": 10, "objects": []}]


def test_snapshots_look_no_further_back_than_what_is_retained():
    objects = [thing(t, name=f"o{t}") for t in range(10)]
    queries = [ask("SRQ", 9, "long", duration=8), ask("SRQ", 9, "short", duration=2), ask("CRQ", 0, "c", duration=9)]

    found, _ = answers(objects, queries, PLANE, retention=3)

    assert [[o["t"] for o in row["objects"]] for row in found if row["type"] == "SRQ"] == [[7, 8, 9], [8, 9]]
    assert sum(row["type"] == "CRQ" for row in found) == 9


def test_skq_breaks_ties_of_distance_by_newest_then_id_then_place():
    objects = [
        thing(1, x=3, name="old"),
        thing(2, x=3, name="b"),
        thing(2, y=3, name="a"),
        thing(2, x=3, name="a"),
        thing(1, x=1, name="near"),
        thing(2, x=9, name="far"),
    ]

    (row,) = rows(objects, [ask("SKQ", 2, duration=9, at=[0, 0], k=5)])

    assert [(o["id"], o["x"], o["distance"]) for o in row["objects"]] == [
        ("near", 1.0, 1.0),
        ("a", 0.0, 3.0),
        ("a", 3.0, 3.0),
        ("b", 3.0, 3.0),
        ("old", 3.0, 3.0),
    ]
    assert list(row["objects"][0]) == ["id", "t", "x", "y", "distance"]


def test_skq_in_degrees_answers_in_metres():
    objects = [parse_object({"id": "o", "t": 1, "lon": 1, "lat": 0, "text": ""}, WGS84)]
    query = parse_query({"id": "q", "type": "SKQ", "t": 1, "at": [0, 0], "k": 3, "duration": 1}, WGS84)

    (row,) = rows(objects, [query], WGS84)

    assert list(row["objects"][0]) == ["id", "t", "lon", "lat", "distance_m"]
    assert row["objects"][0]["distance_m"] == pytest.approx(math.pi / 180 * 6_371_008.8)


def test_stq_counts_a_term_once_an_object_and_breaks_ties_by_term():
    objects = [thing(1, "b b b"), thing(2, "c b"), thing(3, "a c z"), thing(3, "")]

    (row,) = rows(objects, [ask("STQ", 3, duration=3, k=3)])

    assert row["terms"] == [{"term": "b", "count": 2}, {"term": "c", "count": 2}, {"term": "a", "count": 1}]


def test_keywords_restrict_what_stq_counts():
    (row,) = rows([thing(1, "a b"), thing(1, "b c")], [ask("STQ", 1, duration=1, k=5, keywords=["a"])])

    assert row["terms"] == [{"term": "a", "count": 1}, {"term": "b", "count": 1}]


# ---------------------------------------------------------------------------------------------------------- continuous


def test_crq_reports_each_object_of_its_lifetime_at_the_objects_time():
    objects = [thing(t, name=f"o{t}") for t in (9, 10, 14, 15)]

    found = rows(objects, [ask("CRQ", 10, duration=5)])

    assert found == [
        {"query": "q", "type": "CRQ", "t": t, "object": {"id": f"o{t}", "t": t, "x": 0.0, "y": 0.0}} for t in (10, 14)
    ]


def test_a_cancellation_keeps_the_objects_before_it():
    objects = [thing(t) for t in (10, 11, 12)]

    found = rows(objects, [ask("CRQ", 10, duration=50), Cancellation("q", 11)])

    assert [row["t"] for row in found] == [10]


def test_a_cancellation_at_the_registration_leaves_an_empty_lifetime():
    queries = [ask("CRQ", 10, duration=50), Cancellation("q", 10), ask("CRQ", 10, duration=1)]

    assert [row["t"] for row in rows([thing(10), thing(11)], queries)] == [10]


def nearest(row):
    return row["t"], [o["id"] for o in row["objects"]]


def test_ckq_reports_each_change_of_the_nearest():
    objects = [
        thing(0, x=1, name="before"),
        thing(1, x=5, name="a"),
        thing(2, x=9, name="b"),
        thing(3, x=7, name="c"),
        thing(4, x=8, name="no change"),
        thing(5, x=1, name="z"),
        thing(5, x=2, name="y"),
        thing(6, x=0, name="after"),
    ]

    found = rows(objects, [ask("CKQ", 1, duration=5, at=[0, 0], k=2)])

    assert [nearest(row) for row in found] == [
        (1, ["a"]),
        (2, ["a", "b"]),
        (3, ["a", "c"]),
        (5, ["y", "a"]),
        (5, ["z", "y"]),
    ]


def test_ckq_with_a_window_reports_what_leaves_together_and_before_what_arrives():
    objects = [
        thing(0, x=1, name="a"),
        thing(0, x=2, name="b"),
        thing(1, x=3, name="c"),
        thing(1, x=9, name="never near"),
        thing(10, x=4, name="d"),
    ]

    found = rows(objects, [ask("CKQ", 0, duration=100, at=[0, 0], k=2, window=10)])

    assert [nearest(row) for row in found] == [
        (0, ["a"]),
        (0, ["a", "b"]),
        (10, ["c", "never near"]),
        (10, ["c", "d"]),
    ]


def test_ckq_windows_run_out_until_the_last_timestamp_and_the_end_of_life_only():
    query = ask("CKQ", 0, duration=20, at=[0, 0], k=1, window=5)
    other = ask("SRQ", 17, "late", duration=0)

    def changes(objects, *others):
        return [nearest(row) for row in rows(objects, [query, *others]) if row["type"] == "CKQ"]

    assert changes([thing(0), thing(12)]) == [(0, ["o"]), (5, []), (12, ["o"])]
    assert changes([thing(0), thing(12)], other) == [(0, ["o"]), (5, []), (12, ["o"]), (17, [])]
    assert changes([thing(15), thing(99)]) == [(15, ["o"])]


def test_ckq_with_a_window_of_zero_never_holds_anything():
    assert rows([thing(5)], [ask("CKQ", 0, duration=20, at=[0, 0], k=1, window=0)]) == []


def test_ckq_is_not_changed_by_the_twin_of_a_member_beyond_k():
    assert len(rows([thing(5), thing(5)], [ask("CKQ", 0, duration=20, at=[0, 0], k=1)])) == 1
    assert len(rows([thing(5), thing(5)], [ask("CKQ", 0, duration=20, at=[0, 0], k=2)])) == 2


def test_ctq_reports_each_step_over_its_window_of_objects_since_the_query():
    objects = [thing(9, "before"), thing(10, "a"), thing(13, "a"), thing(16, "b"), thing(19, "c")]

    found = rows(objects, [ask("CTQ", 10, duration=9, window=4, step=3, k=1)])

    assert [(row["t"], row["terms"]) for row in found] == [
        (13, [{"term": "a", "count": 2}]),
        (16, [{"term": "a", "count": 1}]),
        (19, [{"term": "b", "count": 1}]),
    ]


def test_ctq_reports_empty_steps_and_stops_at_the_last_timestamp():
    found = rows([thing(20)], [ask("CTQ", 0, duration=100, window=0, step=8, k=1)])

    assert [(row["t"], row["terms"]) for row in found] == [(8, []), (16, [])]


def test_ctq_cancelled_at_a_step_does_not_report_it():
    found = rows([thing(20)], [ask("CTQ", 0, duration=100, window=5, step=8, k=1), Cancellation("q", 16)])

    assert [row["t"] for row in found] == [8]


def test_rows_at_one_instant_come_by_phase_then_object_then_query():
    queries = [
        ask("CTQ", 0, "a step", duration=10, window=5, step=5, k=1),
        ask("SRQ", 5, "a snapshot", duration=1),
        ask("CRQ", 5, "z", duration=5),
        ask("CRQ", 5, "y", duration=5),
        ask("CKQ", 0, "x", duration=50, at=[0, 0], k=1, window=4),
    ]
    objects = [thing(1, name="left"), thing(5, name="b"), thing(5, name="a")]

    found = [(row["query"], row["t"]) for row in rows(objects, queries)]

    assert found == [("x", 1), *((name, 5) for name in ("x", "x", "y", "z", "y", "z", "a snapshot", "a step"))]


# ----------------------------------------------------------------------------------------------------------- lifetimes


@pytest.mark.parametrize(
    ("queries", "refused"),
    [
        # A range or nearest query lives up to, and not at, t + duration.
        (
            [ask("CRQ", 0, duration=10), ask("CRQ", 9, duration=1)],
            {1: "id: 'q' is in use by a query that lives until 10"},
        ),
        ([ask("CRQ", 0, duration=10), ask("CRQ", 10, duration=1)], {}),
        ([ask("CKQ", 0, duration=0, at=[0, 0], k=1), ask("CRQ", 0, duration=1)], {}),
        # A top-k terms query lives at t + duration too, where it may report.
        ([ask("CTQ", 0, duration=10, window=1, step=5, k=1), ask("CRQ", 10, duration=1)], {1: "until 10"}),
        ([ask("CTQ", 0, duration=10, window=1, step=5, k=1), ask("CRQ", 11, duration=1)], {}),
        ([ask("CTQ", 0, duration=10, window=1, step=5, k=1), Cancellation("q", 10), ask("CRQ", 10, duration=1)], {}),
        # A snapshot has its id for its own instant.
        ([ask("SRQ", 0, duration=10), ask("SKQ", 0, duration=10, at=[0, 0], k=1)], {1: "id: 'q' is in use"}),
        ([ask("SRQ", 0, duration=10), ask("CRQ", 0, duration=10)], {1: "id: 'q' is in use"}),
        ([ask("SRQ", 0, duration=10), ask("SRQ", 1, duration=10)], {}),
        ([ask("CRQ", 0, duration=10), ask("SRQ", 5, duration=10)], {1: "id: 'q' is in use"}),
        # What is refused takes no id.
        ([ask("CRQ", 0, duration=10), ask("CRQ", 5, duration=100), ask("CRQ", 12, duration=1)], {1: "until 10"}),
        # Cancellations end what is active, once.
        ([Cancellation("q", 0)], {0: "id: no continuous query 'q' is active"}),
        ([ask("SRQ", 0, duration=10), Cancellation("q", 0)], {1: "no continuous query"}),
        ([ask("CRQ", 0, duration=10), Cancellation("q", 10)], {1: "no continuous query"}),
        ([ask("CRQ", 0, duration=10), Cancellation("q", 5), Cancellation("q", 5)], {2: "no continuous query"}),
        ([ask("CRQ", 0, duration=10), Cancellation("q", 5), ask("CRQ", 5, duration=1)], {}),
        # Order is that of time, then of the input.
        ([ask("CRQ", 5, duration=10), Cancellation("q", 4)], {1: "no continuous query"}),
        ([ask("CRQ", 5, duration=9), ask("CRQ", 4, duration=9)], {0: "until 13"}),
        ([Cancellation("q", 5), ask("CRQ", 5, duration=9)], {0: "no continuous query"}),
    ],
)
def test_an_id_is_in_use_for_the_lifetime_of_its_query(queries, refused):
    _, found = answers([], queries, PLANE)

    assert [position for position, _ in found] == list(refused)
    assert all(part in reason for part, (_, reason) in zip(refused.values(), found, strict=True))


def test_what_is_refused_counts_for_the_last_timestamp():
    queries = [ask("CTQ", 0, duration=100, window=5, step=10, k=1), Cancellation("nobody", 25)]

    found, refused = answers([], queries, PLANE)

    assert [row["t"] for row in found] == [10, 20]
    assert len(refused) == 1


def test_an_empty_stream_has_no_rows():
    assert answers([], [], WGS84) == ([], [])


# ------------------------------------------------------------------------------------ other readings of the definitions


@given(st.data())
def test_distances_and_containment_agree_with_the_kernels_to_the_bit(data):
    space = data.draw(st.sampled_from([WGS84, streams.PLANE]))
    pool = data.draw(st.lists(streams.places(space), min_size=1, max_size=4))
    region = data.draw(streams.regions(space, pool))
    x, y = data.draw(st.one_of(st.sampled_from(pool), streams.places(space)))
    inside = _containment(region, space)

    for other_x, other_y in pool:
        assert _distance(space, x, y, other_x, other_y) == distance(space.geographic, x, y, other_x, other_y)
    match region:
        case Box(west, south, east, north):
            assert inside(x, y) == contains(space.geographic, BOX, west, south, east, north, x, y)
        case Circle(cx, cy, radius):
            assert inside(x, y) == contains(space.geographic, CIRCLE, cx, cy, radius, 0.0, x, y)


@given(streams.streams(types=[QueryType.CKQ], cancellations=False))
def test_the_last_row_of_a_ckq_holds_the_nearest_of_the_moment(stream):
    for query in stream.queries:
        found = rows(stream.objects, [query], stream.space)
        end = query.t + query.lifetime.duration
        window = math.inf if query.lifetime.window is None else query.lifetime.window
        latest = max([query.t, *(o.t for o in stream.objects)])
        for now in range(query.t, min(end, latest + 1)):
            alive = [
                (
                    distance(stream.space.geographic, query.selection.x, query.selection.y, o.x, o.y),
                    -o.t,
                    o.id,
                    o.x,
                    o.y,
                )
                for o in stream.objects
                if query.t <= o.t <= now and o.t > now - window and query.predicate.expression.holds(o.terms)
            ]
            shown = [row["objects"] for row in found if row["t"] <= now]
            assert [(o["id"], -o["t"]) for o in (shown[-1] if shown else [])] == [
                (name, t) for _, t, name, _, _ in sorted(alive)[: query.k]
            ]
        assert all(one["objects"] != other["objects"] for one, other in itertools.pairwise(found))


@given(streams.streams())
def test_answers_do_not_depend_on_the_order_of_objects(stream):
    once = answers(stream.objects, stream.queries, stream.space)

    assert answers(stream.objects[::-1], stream.queries, stream.space) == once


def once(accepted):
    """Without the queries that came again while they were registered."""
    latest, kept = {}, []
    for query in sorted(accepted, key=lambda query: query.t):
        if isinstance(query, Cancellation):
            latest.pop(query.id)
        else:
            text = {name: set(getattr(query.predicate, name)) for name in ("keywords", "none")}
            content = query.to_record() | text
            if latest.get(query.id) == content:
                continue
            if not query.kind.continuous or query.kind.steps or query.lifetime.duration:
                latest[query.id] = content
        kept.append(query)
    return kept


@given(streams.streams())
def test_rows_are_those_of_each_accepted_query_alone(stream):
    """Queries do not influence one another, but for the use of ids."""
    found, refused = answers(stream.objects, stream.queries, stream.space)
    last = max([o.t for o in stream.objects] + [query.t for query in stream.queries], default=0)
    positions = {position for position, _ in refused}
    accepted = once([query for i, query in enumerate(stream.queries) if i not in positions])
    clock = Cancellation("clock", last)
    alone = []
    for query in accepted:
        if not isinstance(query, Cancellation):
            ends = [other for other in accepted if isinstance(other, Cancellation) and other.id == query.id]
            ends = sorted((end for end in ends if end.t >= query.t), key=lambda end: end.t)
            later = [end for end in ends if answers([], [query, end], stream.space)[1] == []][:1]
            mine, _ = answers(stream.objects, [query, *later, clock], stream.space)
            alone += mine
    assert check(found, alone) == []


# ---------------------------------------------------------------------------------------------------------- comparison


def row(name="q", t=1, *ids, d=1.0):
    return {"query": name, "type": "SKQ", "t": t, "objects": [{"id": i, "t": 0, "x": 0.0, "distance": d} for i in ids]}


def test_equal_multisets_have_no_differences_whatever_their_order():
    some = [row("a"), row("b"), row("a"), row("c", 2, "x", "y")]

    assert check(some[::-1], some) == []


@pytest.mark.parametrize(("factor", "same"), [(1 + 1e-10, True), (1 + 1e-8, False)])
def test_distances_may_differ_by_a_relative_billionth(factor, same):
    assert (check([row("a", 1, "x", d=5.0 * factor)], [row("a", 1, "x", d=5.0)]) == []) is same


def test_a_row_too_few_and_a_row_too_many_are_told():
    (missing,) = check([row("a")], [row("a"), row("a")])
    (unexpected,) = check([row("a"), row("a")], [row("a")])

    assert (missing.problem, missing.expected, missing.found) == ("missing", row("a"), None)
    assert (unexpected.problem, unexpected.expected, unexpected.found) == ("unexpected", None, row("a"))
    assert str(missing).startswith('missing: {"query": "a"')


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (row("a", 1, "x", "z"), 'different: SKQ \'a\' at 1: objects[1].id is "z", expected "y"'),
        (row("a", 1, "x"), "different: SKQ 'a' at 1: the number of objects is 1, expected 2"),
        (row("a", 1, "x", "y", d=2.0), "different: SKQ 'a' at 1: objects[0].distance is 2.0, expected 1.0"),
        (row("a", 1, "x", "y") | {"more": 1}, "different: SKQ 'a' at 1: more is 1, expected null"),
    ],
)
def test_rows_that_answer_the_same_query_differently_are_told_together(found, text):
    (difference,) = check([found], [row("a", 1, "x", "y")])

    assert str(difference) == text


def test_the_number_of_differences_is_limited():
    assert len(check([], [row(str(i)) for i in range(9)], limit=4)) == 4


def test_rows_of_any_form_can_be_compared():
    odd = [{}, {"query": None, "objects": 3}, {"object": "text"}, {"objects": [1, None, {"distance": "far"}]}]

    assert len(check(odd, [])) == 4
    assert check(odd, odd) == []


# --------------------------------------------------------------------------------------------------------------- files


@pytest.fixture
def run(tmp_path):
    """Files of a stream with unusable lines, and the output folder of a run that did everything right."""
    stream = streams.random_stream(3, 300, 5)
    objects = [streams.object_record(o, stream.space) for o in stream.objects]
    queries = [streams.query_record(query) for query in stream.queries]
    taken = {"id": "taken", "type": "CRQ", "t": 5, "region": {"box": [0, 0, 1, 1]}, "duration": 9}
    streams.write_lines(tmp_path / "objects.jsonl", [*streams.UNUSABLE_OBJECTS, "", *objects])
    streams.write_lines(tmp_path / "queries.jsonl", [*streams.UNUSABLE_QUERIES, taken, taken | {"t": 6}, *queries])
    found, refused = answers(stream.objects, stream.queries, stream.space)
    assert found
    unusable = len(streams.UNUSABLE_QUERIES)
    rejected = [("objects.jsonl", i + 1) for i in range(len(streams.UNUSABLE_OBJECTS))]
    rejected += [("queries.jsonl", i + 1) for i in range(unusable)]
    rejected += [("queries.jsonl", unusable + 2)]
    rejected += [("queries.jsonl", unusable + 2 + position + 1) for position, _ in refused]
    for name in ("results", "rejected", "results/_metadata"):
        (tmp_path / "out" / name).mkdir(parents=True)
    streams.write_lines(tmp_path / "out/results/part-0.jsonl", found[::2])
    streams.write_lines(tmp_path / "out/results/part-1.jsonl", found[1::2])
    streams.write_lines(tmp_path / "out/results/_metadata/0", ["not a result"])
    streams.write_lines(
        tmp_path / "out/rejected/part-0.jsonl",
        [{"source": f"/in/{name}", "line": line, "reason": "", "record": ""} for name, line in rejected],
    )
    return tmp_path


def compare(folder, **options):
    return check_files([folder / "objects.jsonl"], [folder / "queries.jsonl"], folder / "out/results", WGS84, **options)


def test_a_right_run_is_exact(run):
    result = compare(run)

    assert result.exact
    assert result.objects == 300
    assert result.rejected == len(streams.UNUSABLE_OBJECTS) + len(streams.UNUSABLE_QUERIES) + 1 + (
        result.queries - 2 - len(streams.random_stream(3, 300, 5).queries)
    ) + len(answers([], streams.random_stream(3, 300, 5).queries, WGS84)[1])
    assert {kind for kind, rows in result.rows.items() if not rows} == {"SBQ", "CBQ"}
    assert list(result.lines())[-1] == "exact"


def test_a_lost_row_a_torn_row_and_wrong_rejections_are_told(run):
    results, rejected = run / "out/results/part-0.jsonl", run / "out/rejected/part-0.jsonl"
    results.write_text(results.read_text()[:-20])
    rejected.write_text("\n".join([*rejected.read_text().splitlines()[1:], '{"source": "objects.jsonl", "line": 99}']))

    result = compare(run)

    assert sorted(difference.problem for difference in result.differences) == ["missing", "unexpected"]
    assert result.wrongly_rejected == [("objects.jsonl", 99)]
    assert result.wrongly_accepted == [("objects.jsonl", 1)]
    assert not result.exact
    assert "should be rejected: objects.jsonl:1" in list(result.lines())


def test_without_a_folder_of_rejected_records_the_rows_alone_are_compared(run):
    (run / "out/rejected").rename(run / "elsewhere")

    result = compare(run)

    assert result.exact
    assert not result.rejected_compared


def test_objects_are_the_same_from_every_format(tmp_path):
    stream = streams.random_stream(4, 40, 0)
    records = [streams.object_record(o, stream.space) for o in stream.objects]
    records[0]["text"] = 'two\nlines, and a "quote"'
    plain = streams.write_lines(tmp_path / "a.jsonl", records)
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    table = tmp_path / "a.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["event", "t", "lon", "lat", "text"], quoting=csv.QUOTE_NONNUMERIC)
        writer.writeheader()
        writer.writerows({"event": record["id"]} | {k: v for k, v in record.items() if k != "id"} for record in records)
    columns = tmp_path / "a.parquet"
    moments = pa.array([record["t"] for record in records], pa.timestamp("ms"))
    pq.write_table(pa.Table.from_pylist(records).drop(["t"]).append_column("t", moments), columns)

    wanted = list(read_objects([plain], stream.space))
    found = {
        "gz": list(read_objects([packed], stream.space)),
        "csv": list(read_objects([table], stream.space, columns={"id": "event"})),
        "parquet": list(read_objects([columns], stream.space)),
    }

    assert len(wanted) == 40
    assert all([o for _, o in each] == [o for _, o in wanted] for each in found.values())
    # the header is line 1 of the CSV file, and its first record has two lines
    assert [line for (_, line), _ in found["csv"]] == [2, *range(4, 43)]
    assert [line for (_, line), _ in found["parquet"]] == list(range(1, 41))


CSV = """\
id,t,lon,lat,text
good,5,1,2,x
,5,1,2,no id
no time,,1,2,x
no number,5,east,2,x
"iso, with a comma",2020-01-01, 1 ,2,""
no text,5,1,2,

too few,5,1,2
too many,5,1,2,x,y
behind,5,1,2,"x"y
digits,1_0,1,2,x
"two
lines",5,+1.5,2e0,"a ""b"" c"
plain "quotes",5,1,2,x"y"
"never closed,5,1,2,x
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_csv_is_read_record_by_record(tmp_path, newline):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbf" + CSV.replace("\n", newline).encode())
    rejected = []

    found = [(place[1], o) for place, o in read_objects([path], WGS84, reject=rejected.append)]

    assert [(line, o.id.replace("\r", ""), o.terms) for line, o in found] == [
        (2, "good", ("x",)),
        (6, "iso, with a comma", ()),
        (13, "two\nlines", ("a", "b", "c")),
        (15, 'plain "quotes"', ("x", "y")),
    ]
    assert (found[2][1].x, found[2][1].y) == (1.5, 2.0)
    assert [line for _, line in rejected] == [3, 4, 5, 7, 9, 10, 11, 12, 16]


def test_text_that_is_not_utf8_is_rejected(tmp_path):
    csv_file, json_file = tmp_path / "a.csv", tmp_path / "a.jsonl"
    csv_file.write_bytes(b"id,t,lon,lat,text\na,5,1,2,\xff\nb,5,1,2,x\n")
    json_file.write_bytes(
        b'{"id": "a", "t": 5, "lon": 1, "lat": 2, "text": "\xff"}\n'
        b'{"id": "\\ud800", "t": 5, "lon": 1, "lat": 2, "text": ""}\n'
        b'{"id": "b", "t": 5, "lon": 1, "lat": 2, "text": ""}\n'
    )
    rejected = []

    found = [o.id for _, o in read_objects([csv_file, json_file], WGS84, reject=rejected.append)]

    assert found == ["b", "b"]
    assert rejected == [("a.csv", 2), ("a.jsonl", 1), ("a.jsonl", 2)]


def test_columns_can_be_given_other_names(tmp_path):
    path = streams.write_lines(
        tmp_path / "a.jsonl", [{"code": "a", "t": 5, "lon": 1, "lat": 2, "text": "x", "id": "words"}]
    )

    (named,) = read_objects([path], WGS84, columns={"id": "code", "text": "id"})

    assert (named[1].id, named[1].terms) == ("a", ("words",))
    # Once its column has been given away, the field has none.
    assert list(read_objects([path], WGS84, columns={"text": "id"})) == []


def test_parquet_holds_times_and_numbers_of_many_types(tmp_path):
    path = tmp_path / "a.parquet"
    moments = pa.array([1_999_999, -1], pa.timestamp("us"))
    rows = {"id": ["a", "b"], "t": moments, "lat": pa.array([Decimal("1.50"), None]), "terms": [["x y"], []]}
    pq.write_table(pa.table(rows | {"lon": pa.array([1, 2], pa.int8())}), path)
    rejected = []

    ((_, found),) = read_objects([path], WGS84, reject=rejected.append)

    assert (found.t, found.x, found.y, found.terms) == (1_999, 1.0, 1.5, ("x", "y"))
    assert rejected == [("a.parquet", 2)]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_that_is_not_there_is_a_wrong_setting(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    if suffix == ".csv":
        path.write_text("id,t\n")
    else:
        pq.write_table(pa.table({"id": ["a"]}), path)

    with pytest.raises(SettingError, match="no column 'event'"):
        list(read_objects([path], WGS84, columns={"id": "event"}))


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.jsonl.gz", b"plain"), ("x.parquet", b"plain"), ("x.pdf", b"{}"), ("x.parquet.gz", b""), ("none.jsonl", None)],
)
def test_a_file_that_cannot_be_read_is_a_wrong_setting(tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(SettingError, match=name):
        list(read_objects([tmp_path / name], WGS84))


def test_results_that_do_not_exist_are_a_wrong_setting(tmp_path):
    with pytest.raises(SettingError, match="none"):
        read_rows(tmp_path / "none")


# ------------------------------------------------------------------------------------------------------------ the demo


def test_every_query_of_the_demo_finds_something():
    rejected = []
    objects = [o for _, o in read_objects([OBJECTS], WGS84, RULE, reject=rejected.append)]
    queries = [query for _, query in read_queries([QUERIES], WGS84, RULE, reject=rejected.append)]

    found, refused = answers(objects, queries, WGS84)

    assert (len(objects), rejected, refused) == (1707, [], [])
    assert [o.t for o in objects] == sorted(o.t for o in objects)
    asked = [query for query in queries if not isinstance(query, Cancellation)]
    assert {query.type for query in asked} == set(TYPES)
    polygons = [query.predicate.region for query in asked if isinstance(query.predicate.region, Polygon)]
    assert sorted(region.within for region in polygons) == [0, 10_000]
    assert sum(query.predicate.where is not None for query in asked) == 2
    answered = {row["query"] for row in found if row.get("object") or row.get("objects") or row.get("terms")}
    assert answered == {query.id for query in queries}


# ----------------------------------------------------------------------------------------------- the streams themselves


@given(streams.streams())
def test_streams_survive_their_files(stream):
    for o in stream.objects:
        assert parse_object(json.loads(json.dumps(streams.object_record(o, stream.space))), stream.space) == o
    for query in stream.queries:
        assert parse_query(json.loads(json.dumps(streams.query_record(query))), stream.space, stream.rule) == query


def test_written_streams_are_read_again(tmp_path):
    stream = streams.random_stream(5, 50, 2, streams.PLANE)

    objects, queries = streams.write_stream(tmp_path, stream)

    assert [o for _, o in read_objects([objects], stream.space)] == stream.objects
    assert [query for _, query in read_queries([queries], stream.space)] == stream.queries


@pytest.mark.parametrize(
    ("line", "parse"),
    [(line, parse_object) for line in streams.UNUSABLE_OBJECTS]
    + [(line, parse_query) for line in streams.UNUSABLE_QUERIES],
)
def test_unusable_lines_are_unusable(line, parse):
    try:
        record = json.loads(line)
    except ValueError:
        return
    with pytest.raises(RecordError):
        parse(record, WGS84)


@pytest.mark.parametrize("space", [WGS84, streams.PLANE])
def test_random_streams_have_answers_of_every_type(space):
    stream = streams.random_stream(1, 500, 30, space, types=TYPES)

    found, _ = answers(stream.objects, stream.queries, space)

    for kind in TYPES:
        mine = [row for row in found if row["type"] == kind]
        assert sum(bool(row.get("object") or row.get("objects") or row.get("terms")) for row in mine) >= 10
    assert streams.random_stream(1, 500, 30, space, types=TYPES) == stream


def test_times_that_are_numbers_are_of_the_unit_that_is_given(tmp_path):
    said = "1970-01-01T00:00:05Z"
    lines = [json.dumps({"id": "o", "t": t, "lon": 0, "lat": 0, "text": ""}) for t in (5, "5", said)]
    (tmp_path / "o.jsonl").write_text("\n".join(lines))
    (tmp_path / "o.csv").write_text(f'id,t,lon,lat,text\no,5,0,0,""\no,{said},0,0,""\n')
    for name in ("o.jsonl", "o.csv"):
        found = [each.t for _, each in read_objects([tmp_path / name], WGS84, unit="s")]
        assert set(found) == {5_000}
    found = [each.t for _, each in read_objects([tmp_path / "o.jsonl"], WGS84, unit="us")]
    assert found == [0, 0, 5_000]
