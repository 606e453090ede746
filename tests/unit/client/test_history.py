"""Rows that have come: each of a time once, however they are paged, repeated, cut and divided; and how many when."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from spatialstream.client.cursor import Cursor
from spatialstream.client.history import History, HistoryLimits
from spatialstream.model.errors import Gone
from tests.unit.client.log import MemoryLog
from tests.unit.gateway.results import in_parts, messages, row


def lines(
    log: MemoryLog, query: str, since: int, until: int, limit: int = 3, limits: HistoryLimits | None = None
) -> list[bytes]:
    """All rows of a time, page by page; the word of a place is all that is kept between two pages."""
    found, place = list[bytes](), None
    for _ in range(1_000):
        page = History(log, query, limits).rows(since, until, limit, place)
        assert len(page.rows) <= limit
        found += [each.line for _, each in page.rows]
        if page.next is None:
            return found
        place = Cursor.parse(str(page.next))
    raise AssertionError("it does not end")


def test_the_rows_of_a_query_between_two_times_come_once_page_by_page() -> None:
    log = MemoryLog()
    for number in range(20):
        both = [row(query, 10 * number + i) for i in range(4) for query in ("x", "y")]
        log.add(1_000 * number, messages(both, 3, number))
    assert lines(log, "x", 5_000, 7_000) == [row("x", 10 * number + i) for number in (5, 6) for i in range(4)]
    assert lines(log, "x", 0, 10**9) == [row("x", 10 * number + i) for number in range(20) for i in range(4)]
    assert lines(log, "nobody", 0, 10**9) == lines(log, "x", 6_001, 6_002) == lines(log, "x", 10**6, 10**7) == []
    (first, *_) = History(log, "y").rows(5_000, 6_000, 1).rows
    assert (first[0], first[1].line) == (5_000, row("y", 50))


def test_an_id_that_json_escapes_and_one_that_begins_another() -> None:
    log, names = MemoryLog(), ('a"b\\', "a", "ab", "é")
    quoted = [
        row("N", i).replace(b'"N"', b'"%s"' % name) for i, name in enumerate((b'a\\"b\\\\', b"a", b"ab", "é".encode()))
    ]
    log.add(5, messages(quoted, 4, 0))
    assert [lines(log, name, 0, 10) for name in names] == [[each] for each in quoted]


def test_repeated_rows_are_passed_over() -> None:
    log = MemoryLog()
    for number in (0, 1, 0, 1, 2, 2):
        log.add(number, messages([row("x", 10 * number + i) for i in range(5)], 2, number))
    expected = [row("x", 10 * number + i) for number in range(3) for i in range(5)]
    assert lines(log, "x", 0, 10) == lines(log, "x", 0, 10, 100) == expected
    assert sum(rows for rows, _ in History(log, "x").counts(0, 10, 1).counts) == 15


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_row_in_parts_is_of_the_time_at_which_it_began(limit: int) -> None:
    log = MemoryLog()
    first, second = in_parts("x", 1, 3), in_parts("x", 2, 2)
    sent = messages([row("x", 0), *first, row("y", 1), *second, row("x", 3)], 1, 0)
    for at, message in enumerate(sent):
        log.add(at, [message])
    all_rows = lines(log, "x", 0, 100, limit)
    assert len(all_rows) == 4
    assert all(b'"part"' not in each for each in all_rows)
    for cut in range(len(sent) + 1):
        assert lines(log, "x", 0, cut, limit) + lines(log, "x", cut, 100, limit) == all_rows, cut
    assert History(log, "x").counts(0, 100, 1).counts == [(4, True)]


def test_a_row_whose_rest_never_came_holds_nothing_up() -> None:
    log = MemoryLog()
    begun = in_parts("x", 1, 3)[:2]
    for at, message in enumerate(messages([row("x", 0), *begun], 1, 0) + messages([row("x", 5)], 1, 1)):
        log.add(at, [message])
    assert lines(log, "x", 0, 100) == [row("x", 0), row("x", 5)]
    assert lines(log, "x", 0, 2) == [row("x", 0)]
    assert lines(log, "x", 0, 3) == [row("x", 0)], "what cuts it off is of its own time"
    assert lines(log, "x", 3, 4) == [row("x", 5)]


def test_partitions_gaps_and_lives() -> None:
    log = MemoryLog([[], []])
    log.add(1, messages([row("x", 1)], 1, 0), 1)
    log.partitions[1] += [None, (1, None, b"foreign"), (1, b"no key", row("x", 9)), None]
    log.add(2, messages([row("y", 1)], 1, 0), 0)
    log.add(3, messages([row("x", 2)], 1, 0, incarnation="b"), 1)
    assert lines(log, "x", 0, 10) == [row("x", 1), row("x", 2)]
    assert lines(log, "y", 0, 10) == [row("y", 1)]
    found = History(log, "x").counts(0, 4, 4)
    assert (found.counts, found.kept) == ([(0, True), (1, True), (0, True), (1, True)], 1)
    assert History(MemoryLog(), "x").counts(0, 4, 2).kept is None


def test_what_is_kept_no_more_is_told() -> None:
    log = MemoryLog()
    for number in range(10):
        log.add(number, messages([row("x", number)], 1, number))
    page = History(log, "x").rows(2, 10, 1)
    log.first = 7
    with pytest.raises(Gone):
        History(log, "x").rows(2, 10, 1, page.next)
    with pytest.raises(Gone):
        History(log, "x").rows(2, 10, 1, Cursor.of((99,)))
    with pytest.raises(Gone):
        History(log, "x").rows(2, 10, 1, Cursor.of((8, 8)))
    assert lines(log, "x", 2, 10) == [row("x", number) for number in (7, 8, 9)]
    assert History(log, "x").counts(2, 10, 8).kept == 7


def test_what_is_read_is_bounded_and_what_is_estimated_is_said_to_be() -> None:
    limits = HistoryLimits(read=40_000, seconds=600.0)
    log, chance = MemoryLog(), random.Random(3)
    for number in range(1_000):  # in the second half of the time ten times as many
        some = [row(chance.choice("xyyy"), i) for i in range(20)]
        log.add(number if number < 100 else 100 + number // 9, messages(some, 20, number))
    total = sum(len(each[2] or b"") for each in log.partitions[0] if each is not None)
    assert total > 20 * 40_000
    found = History(log, "x", limits).counts(0, 220, 10)
    assert log.read_bytes < 100_000
    assert not all(exact for _, exact in found.counts)
    counted = sum(rows for rows, _ in found.counts)
    assert counted == pytest.approx(5_000, rel=0.25)
    log.read_bytes = 0
    page = History(log, "nobody", limits).rows(0, 10**6, 10)
    assert page.rows == []
    assert page.next is not None, "nothing has been found, and there is more to look at"
    assert log.read_bytes < 60_000
    assert len(lines(log, "x", 0, 10**6, 10_000, limits)) == sum(
        (each[2] or b"").count(b'"x"') for each in log.partitions[0] if each
    )
    assert (
        sum(len(each.line) for _, each in History(log, "x", replace(limits, rows=500)).rows(0, 10**6, 1_000).rows)
        <= 500
    )


def test_few_parts_are_counted_of_many_partitions() -> None:
    log = MemoryLog([[] for _ in range(100)])
    log.add(5, messages([row("x", 1)], 1, 0), 99)
    assert History(log, "x").counts(0, 10, 60).counts == [(0, True), (1, True)]
