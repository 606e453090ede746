"""Ages of result rows."""

from __future__ import annotations

from spatialstream.client.latency import Latencies


def test_of_many_matches_of_a_message_some_are_measured() -> None:
    match, answer = (b'{"query": "q", "type": "%s", "t": 900, "x": 1}' % kind for kind in (b"CRQ", b"SRQ"))
    early = match.replace(b"900", b"100")
    few, all_ = Latencies(500), Latencies(500, every=1)
    for each in (few, all_):
        each.take(b"\n".join([match] * 20 + [answer, early]), 1_000.0)
        assert each.rows == {"CRQ": 21, "SRQ": 1}
    assert few.percentiles() == {
        kind: {"measured": count, "p50": 100.0, "p95": 100.0, "p99": 100.0} for kind, count in (("CRQ", 2), ("SRQ", 1))
    }
    assert all_.percentiles()["CRQ"]["measured"] == 20


def test_rows_of_others_do_not_count() -> None:
    own = Latencies(0, own=lambda name, kind: (name, kind) == ('a"é\\', "SRQ"))
    for name in (b"probe-1", b'a\\"\xc3\xa9\\\\', b'a\\"\xc3\xa9'):
        own.take(b'{"query": "%s", "type": "SRQ", "t": 5, "objects": []}' % name, 7.0)
    assert own.rows == {"SRQ": 1}
    assert own.ages == {"SRQ": [2.0]}
