"""Queries are checked where they enter, and are sent as they were written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spatialstream.client.checked_queries import check_queries
from spatialstream.model.kinds import TYPES
from spatialstream.model.space import WGS84
from tests.streams import Stream, query_record, streams

SRQ = {"type": "SRQ", "region": {"box": [-2, -2, 2, 2]}, "duration": "1h"}


@given(drawn=streams(types=TYPES), stamped=st.booleans())
def test_what_is_checked_is_sent_as_it_was_written(drawn: Stream, stamped: bool) -> None:
    written = {}
    for query in drawn.queries:
        record = query_record(query)
        kept = stamped or "between" in record  # an interval is one before the query's time
        written[record["id"]] = record if kept else {name: record[name] for name in record if name != "t"}

    sent = check_queries([("line", record) for record in written.values()], drawn.space)

    assert sent == list(written.values())


def test_a_query_without_an_id_gets_one_of_its_own() -> None:
    sent = check_queries([("one", SRQ), ("two", SRQ)], WGS84)

    assert len({record["id"] for record in sent}) == 2
    assert all(record | {"id": ""} == SRQ | {"id": ""} for record in sent)
