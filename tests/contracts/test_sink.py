"""The contract of every sink (:class:`spatialstream.connectors.contracts.Sink`)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from spatialstream.connectors.delivery import Deduplicator
from tests.contracts.harness import Sinks


def lines(turn: int, phase: int, count: int, size: int = 1) -> list[str]:
    return [f'{{"turn": {turn}, "phase": {phase}, "row": {i}, "filling": "{"é" * size}"}}' for i in range(count)]


def pieces(rows: list[str], *sizes: int) -> Iterator[pa.LargeStringArray]:
    """Split rows into pieces of the given sizes; the last piece has the rest."""
    first = 0
    for size in (*sizes, len(rows)):
        yield pa.array(rows[first : first + size], pa.large_string())
        first += size


def had(sinks: Sinks) -> list[str]:
    """The rows of a consumer that drops what it has seen."""
    known = Deduplicator()
    return [row.decode() for key, value in sinks.results() for row in known.new_rows(key, value)]


@pytest.mark.parametrize("incarnation", ["", "one"])
class TestSink:
    def test_rows_are_had_in_their_order(self, sinks: Sinks, incarnation: str) -> None:
        sink, expected = sinks.of(incarnation), list[str]()
        for turn, phase, count in ((0, 0, 7), (0, 1, 4), (1, 0, 1), (3, 0, 2), (3, 1, 100)):
            rows = lines(turn, phase, count)
            assert sink.rows(turn, phase, pieces(rows, 2, 0, 1)) == count
            expected += rows
            assert had(sinks) == expected, "once they have been published"

    def test_turns_without_a_row(self, sinks: Sinks, incarnation: str) -> None:
        sink = sinks.of(incarnation)
        assert sink.rows(0, 0, []) == sink.rows(1, 0, pieces([])) == sink.rows(1, 1, []) == 0
        assert had(sinks) == []
        assert sink.rows(2, 0, pieces(lines(2, 0, 1))) == 1
        assert had(sinks) == lines(2, 0, 1)

    def test_a_turn_that_is_repeated(self, sinks: Sinks, incarnation: str) -> None:
        sink, expected = sinks.of(incarnation), list[str]()
        for turn in range(3):
            for sizes in ((1, 2, 3), (), (8,)):
                for phase in (0, 1):
                    assert sink.rows(turn, phase, pieces(lines(turn, phase, 10), *sizes)) == 10
            expected += [*lines(turn, 0, 10), *lines(turn, 1, 10)]
            assert had(sinks) == expected

    @pytest.mark.parametrize("after", [0, 1, 3])
    def test_a_turn_that_fails_in_the_middle_and_is_repeated(self, sinks: Sinks, incarnation: str, after: int) -> None:
        sink, rows = sinks.of(incarnation), lines(5, 0, 20)

        def failing() -> Iterator[pa.LargeStringArray]:
            for _, piece in zip(range(after), pieces(rows, 4, 4, 4), strict=False):
                yield piece
            raise ZeroDivisionError

        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                sink.rows(5, 0, failing())
            assert had(sinks) == rows[: len(had(sinks))], "those that are there are the first"
        assert sink.rows(5, 0, pieces(rows)) == 20
        assert sink.rows(5, 1, pieces(lines(5, 1, 2))) == 2
        assert sinks.of(incarnation).rows(6, 0, pieces(lines(6, 0, 2))) == 2
        assert had(sinks) == [*rows, *lines(5, 1, 2), *lines(6, 0, 2)]

    def test_large_rows(self, sinks: Sinks, incarnation: str) -> None:
        rows = lines(0, 0, 5, 2_000_000)
        assert sinks.of(incarnation).rows(0, 0, pieces(rows, 1, 1)) == 5
        assert had(sinks) == rows

    def test_an_incarnation_after_another(self, sinks: Sinks, incarnation: str) -> None:
        for number in range(3):
            sinks.of(incarnation).rows(number, 0, pieces(lines(number, 0, 5)))
        sinks.of("two").rows(0, 0, pieces(lines(0, 0, 5)))
        assert had(sinks) == [*lines(0, 0, 5), *lines(1, 0, 5), *lines(2, 0, 5), *lines(0, 0, 5)]

    def test_dead_letters(self, sinks: Sinks, incarnation: str) -> None:
        sink = sinks.of(incarnation)
        letters = [f'{{"number": {i}, "why": "naïve"}}' for i in range(2500)]
        sink.rejected(0, "input", [])
        sink.rejected(0, "input", iter(letters[:2000]))
        sink.rejected(0, "round", letters[2000:2001])
        sink.rejected(0, "round", letters[2000:2001])
        sink.rejected(1, "input", letters[2001:])
        assert list(dict.fromkeys(sinks.letters())) == letters
        assert had(sinks) == []
