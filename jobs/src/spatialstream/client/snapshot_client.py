"""Snapshot queries to a running stream, answered between its rounds as of the newest one.

These queries do not go through the stream: they go directly to one of its actors, which answers them
(:mod:`spatialstream.actors.coordinator`). All answers of a call are as of one round, and name it. To ask again is
harmless, so what is Unavailable is asked again, of another actor if one has gone. The functions that reach the stream's
driver and its actors are passed in.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, overload

import numpy as np

from spatialstream.actors.query_endpoint import AskedQuery, QueriesRefusedError, Request
from spatialstream.actors.read_point import ReadPoint
from spatialstream.client.answer import Answer
from spatialstream.client.query_session import checked_query
from spatialstream.model.answer_bounds import UNBOUNDED, AnswerBounds
from spatialstream.model.errors import NotServed, RecordError, Replaced, SettingError, Suspended, Unavailable
from spatialstream.model.kinds import listed
from spatialstream.model.queries import Query
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE, SUBSCRIPTIONS, TermRule
from spatialstream.model.times import check_time, looks_like, parse_time

__all__ = ["SnapshotClient"]

MOST = 1_000
"""Most queries answered together. A longer list is split, and each part is answered as of the newest round then."""

Ask = Callable[[Request], Generator[tuple[list[int], list[bytes]]]]
"""Has an actor answer queries, see :meth:`~spatialstream.actors.query_endpoint.QueryClient.ask`."""

_SNAPSHOT = listed(lambda kind: not kind.continuous)
_CONTINUOUS = listed(lambda kind: kind.continuous)
_PAUSES = (0.002, 0.1)
"""Seconds between two polls of the newest round: the first, and the longest."""


class SnapshotClient:
    """Has SRQs, SKQs and STQs answered. Safe for several threads if the functions passed in are.

    Args:
        newest: the stream's newest round; None: it has done none yet. Errors of its own are Unavailable. It is given
            the seconds within which it has to be done.
        ask: has an actor answer queries. Errors of its own are Unavailable.
        space: of the stream.
        rule: of the stream's terms.
        pause: waits for a number of seconds.

    Attributes:
        space, rule: as passed in.
    """

    def __init__(
        self,
        newest: Callable[[float], ReadPoint | None],
        ask: Ask,
        space: Space = WGS84,
        rule: TermRule = DEFAULT_RULE,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._newest, self._ask = newest, ask
        self.space, self.rule, self._pause = space, rule, pause

    def as_of(self, timeout: float = 10.0) -> dict[str, int] | None:
        """The round and the clock of the newest round; see :meth:`~spatialstream.client.stream.Stream.as_of`."""
        read_point = self._newest(timeout)
        return read_point.as_of if read_point is not None and read_point.begun else None

    def read_point(self, timeout: float = 10.0) -> ReadPoint:
        """Return the read point of the stream's newest round.

        Args:
            timeout: seconds to wait for the stream.

        Raises:
            Unavailable: it does not answer in time, or has not completed a round yet.
        """
        read_point = self._newest(timeout)
        if read_point is None:
            raise Unavailable("the stream has just started: it has not completed a round yet")
        return read_point

    @overload
    def ask(
        self, query: Mapping[str, Any], *, at_least: int | str | None = None, timeout: float = 10.0, sure: bool = False
    ) -> Answer: ...

    @overload
    def ask(
        self,
        query: Iterable[Mapping[str, Any]],
        *,
        at_least: int | str | None = None,
        timeout: float = 10.0,
        sure: bool = False,
    ) -> list[Answer]: ...

    def ask(
        self,
        query: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        at_least: int | str | None = None,
        timeout: float = 10.0,
        sure: bool = False,
    ) -> Answer | list[Answer]:
        """The answer to a query, or the answers to several; see :meth:`~spatialstream.client.stream.Stream.ask`."""
        if isinstance(query, Mapping):
            (line,) = self.lines([("query", query)], at_least, timeout, sure=sure)
            return Answer(json.loads(line), query, self.space)
        asked = list(query)
        named = ((f"query {number}", each) for number, each in enumerate(asked))
        lines = self.lines(named, at_least, timeout, sure=sure)
        return [Answer(json.loads(line), each, self.space) for line, each in zip(lines, asked, strict=True)]

    def lines(
        self,
        records: Iterable[tuple[str, object]],
        at_least: int | str | None = None,
        timeout: float = 10.0,
        bounds: AnswerBounds = UNBOUNDED,
        *,
        sure: bool = False,
    ) -> Iterator[str]:
        """Yield the answers as lines of JSON, in the order of the queries.

        Args:
            records: the name of each query's origin, for error messages, and the query.
            at_least: ms or ISO 8601: wait until the clock has reached this time.
            timeout: seconds for the answers to arrive, with all retries. All errors are raised before the first line,
                except Unavailable with more than a thousand queries.
            bounds: limits of the answers' memory, which is held until the caller has consumed the lines.
            sure: accept numeric times as ms even if they look like another unit.

        Raises:
            NotServed: the stream serves subscriptions only.
            TooLarge: they would take more.
        """
        asked = [replace(each, sure=sure) for each in self._all_checked(records)]
        earliest = None if at_least is None else self._earliest(at_least, timeout, sure=sure)
        for first in range(0, len(asked), MOST):
            (found,) = self._answers([(asked[first : first + MOST], timeout)], earliest, bounds)
            if isinstance(found, SettingError | Unavailable):
                raise found
            yield from (line.decode() for line in found)

    def _earliest(self, at_least: int | str, timeout: float, *, sure: bool) -> int:
        """The time for which an answer waits; its unit is checked if the stream says its clock at once."""
        as_of: dict[str, int] | None = None
        try:
            earliest = parse_time(at_least)
            if not sure and looks_like(np.array([earliest])) is not None:
                with suppress(Unavailable):
                    as_of = self.as_of(min(timeout, 1.0))
            if as_of is not None:
                check_time(at_least, as_of["clock"])
        except RecordError as error:
            raise SettingError("at_least", error.problem) from None
        return earliest

    def together(
        self,
        requests: Iterable[tuple[Iterable[tuple[str, object]], float]],
        at_least: int | None = None,
        bounds: AnswerBounds = UNBOUNDED,
    ) -> list[list[bytes] | SettingError | Unavailable]:
        """Answer several requests as of one round: each gets its lines as from :meth:`lines`, or its error.

        An error of one request does not affect the others. Only one try is made: the caller can wait for a time, or
        retry what is Unavailable, without holding a thread.

        Args:
            requests: the queries of each request, and its timeout; at most :data:`MOST` queries in all.
            at_least: ms: no answer before the clock has reached this time; None: at once.
            bounds: what all answers together may take, see :meth:`lines`.

        Raises:
            TooLarge: they would take more; the answers of one of them may not.
            Replaced: the stream has been replaced by another one of its name.
        """
        checked = list[tuple[list[_Asked] | SettingError, float]]()
        for records, timeout in requests:
            try:
                checked.append((self._all_checked(records), timeout))
            except SettingError as error:
                checked.append((error, timeout))
        return self._answers(checked, at_least, bounds, once=True)

    def _all_checked(self, records: Iterable[tuple[str, object]]) -> list[_Asked]:
        return [self._checked(place, record) for place, record in records]

    def _checked(self, place: str, given: object) -> _Asked:
        if self.rule.serves == SUBSCRIPTIONS:
            raise NotServed(place, f"the stream serves {SUBSCRIPTIONS} and stores no objects; register a {_CONTINUOUS}")
        record, query = checked_query(place, given, self.space, self.rule)
        if not isinstance(query, Query) or query.lifetime.continuous:
            raise SettingError(
                place, f"type: {record['type']} is not a snapshot query ({_SNAPSHOT}); send it through the stream"
            )
        return _Asked(place, query, record.get("t"))

    def _answers(
        self,
        requests: Sequence[tuple[list[_Asked] | SettingError, float]],
        earliest: int | None,
        bounds: AnswerBounds,
        *,
        once: bool = False,
    ) -> list[list[bytes] | SettingError | Unavailable]:
        """Answer several requests as of one round: of each the lines or the error."""
        began, pause = time.monotonic(), _PAUSES[0]
        answers: dict[int, list[bytes] | SettingError | Unavailable] = {}
        unanswered: dict[int, list[_Asked]] = {}
        for number, (asked, _) in enumerate(requests):
            if isinstance(asked, SettingError):
                answers[number] = asked
            elif asked:
                unanswered[number] = asked
            else:
                answers[number] = []
        while unanswered:
            seconds = _left(began + min(requests[number][1] for number in unanswered))
            try:
                some = [each for asked in unanswered.values() for each in asked]
                lines = iter(self._answered(some, earliest, seconds, bounds))
                answers |= {number: list(islice(lines, len(asked))) for number, asked in unanswered.items()}
                break
            except QueriesRefusedError as error:
                wrong = _by_request(unanswered, error.reasons)
                answers |= wrong
                unanswered = {number: asked for number, asked in unanswered.items() if number not in wrong}
                continue
            except Replaced:
                raise  # no later try can succeed
            except Suspended as error:  # nor is one likely to
                answers |= dict.fromkeys(unanswered, error)
                break
            except Unavailable as error:
                for number in list(unanswered):
                    timeout = requests[number][1]
                    if once or time.monotonic() + pause > began + timeout:
                        answers[number] = error if once else Unavailable(f"{error}; waited {timeout:g} s")
                        del unanswered[number]
            if unanswered:
                self._pause(pause)
                pause = min(2 * pause, _PAUSES[1])
        return [answers[number] for number in range(len(requests))]

    def _answered(
        self, asked: Sequence[_Asked], earliest: int | None, seconds: float, bounds: AnswerBounds
    ) -> list[bytes]:
        """The lines of one attempt."""
        request = Request([each.sent for each in asked], seconds, earliest, bounds.largest)
        lines, held = [b""] * len(asked), 0
        try:
            with closing(self._ask(request)) as answer:
                for numbers, rows in answer:
                    size = sum(map(len, rows))
                    bounds.hold(size)
                    held += size
                    for number, row in zip(numbers, rows, strict=True):
                        lines[number] = row
        except BaseException:
            bounds.hold(-held)
            raise
        return lines


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query.

    Attributes:
        place: name of its origin, for error messages.
        query: the parsed query.
        given: its time as it was given; None: it has none.
        sure: whether its time is in ms, whatever it looks like.
    """

    place: str
    query: Query
    given: Any
    sure: bool = False

    @property
    def sent(self) -> AskedQuery:
        """As it is sent."""
        checked = self.given if isinstance(self.given, str) else self.query.t
        timed = self.given is not None
        return AskedQuery(self.query, timed, None if self.sure or not timed else checked)


def _by_request(asked: Mapping[int, Sequence[_Asked]], reasons: Mapping[int, str]) -> dict[int, SettingError]:
    """The first error of each request that has one; ``reasons`` are by the position of the query in all of them."""
    problems, first = dict[int, SettingError](), 0
    for number, mine in asked.items():
        for i, each in enumerate(mine, first):
            if i in reasons:
                problems.setdefault(number, SettingError(each.place, reasons[i]))
        first += len(mine)
    return problems


def _left(until: float) -> float:
    """Seconds until then, but at least one, so that every try has a chance."""
    return max(1.0, until - time.monotonic())
