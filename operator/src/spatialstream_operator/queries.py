"""The reconciliation of one SpatialQuery: it is registered with its stream, monitored, and finally cancelled.

A registration is written to the status before it is sent, and removed when the query is known to be no longer
registered. So an operator that is restarted at any moment continues from there: it registers each query once, and
leaves none behind.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

from spatialstream.model.errors import Unavailable
from spatialstream_operator.cluster import Object
from spatialstream_operator.context import changes, emit
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.balance import Verdict
from spatialstream_operator.decisions.conditions import condition
from spatialstream_operator.decisions.registration import (
    NO_GATEWAY,
    Registration,
    Wish,
    hindrance,
    news,
    next_registration,
    registrations,
)
from spatialstream_operator.environment import Environment
from spatialstream_operator.gateway import Gateway, Refusal
from spatialstream_operator.loop import Loop
from spatialstream_operator.names import KIND, QUERY_KIND, StreamNames
from spatialstream_operator.steps.removing import SKIP_ANNOTATION

__all__ = ["CONDITION", "QueryController", "remove_query"]

CONDITION = "Registered"

_STEADY = 6
"""Reconciliation intervals between two reconciliations of a query in steady state."""
_REFUSALS = {400: "Refused", 401: "NotAllowed", 403: "NotAllowed"}
_SETTLED = frozenset({"Registered", "Refused", "Ended"})
_GONE = frozenset({"NoStream", "StreamDeleted", "Ended"})
"""With these reasons nothing is registered, whatever was registered before."""


class QueryController(Loop):
    """Reconciles one SpatialQuery until it is stopped, or the resource is gone."""

    def begun(self) -> None:
        """Begin the metrics of the query."""
        self._environment.metrics.begin_query(self._namespace, self._name)

    def _count(self, outcome: str, seconds: float) -> None:
        self._environment.metrics.query_reconciles.labels(self._namespace, self._name, outcome).inc()

    async def look(self) -> float | None:
        """Reconcile the query once; see :class:`~spatialstream_operator.loop.Loop`."""
        body = await self._environment.cluster.get(QUERY_KIND, self._name, self._namespace)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        book = _Book.open(self._environment, body)
        verdict = await _stand(book)
        await book.say(verdict)
        registered = self._environment.metrics.query_registered.labels(self._namespace, self._name)
        registered.set(verdict.status == "True")
        settled = verdict.reason in _SETTLED and len(book.registrations) <= 1
        return self._environment.config.interval * (_STEADY if settled else 1)


async def remove_query(environment: Environment, body: Object) -> bool:
    """Continue the removal of a SpatialQuery; True when nothing of it is registered any more.

    Args:
        environment: shared clients and settings.
        body: the resource, which is being deleted.

    Raises:
        ClusterError: the API server does not respond.
    """
    book = _Book.open(environment, body)
    metadata = body["metadata"]
    if (metadata.get("annotations") or {}).get(SKIP_ANNOTATION) != "true":
        stream = await environment.cluster.get(KIND, book.wish.stream, metadata["namespace"])
        # the registrations of a stream end with it
        if stream is not None and not stream["metadata"].get("deletionTimestamp") and book.registrations:
            problem = await _cancelled(book)
            if problem or book.registrations:
                await book.say(Verdict("Unknown", "Cancelling", problem or "The query is being cancelled."))
                return False
    environment.metrics.end_query(metadata["namespace"], metadata["name"])
    return True


async def _cancelled(book: _Book) -> str:
    """Cancel all registrations; return why that is not possible for now, "" if it is."""
    if book.environment.gateway is None:
        return NO_GATEWAY
    try:
        for each in book.registrations:
            await _cancel(book, book.environment.gateway, each)
    except Unavailable as error:
        return str(error)
    except Refusal as refusal:
        return refusal.detail
    return ""


@dataclass(slots=True)
class _Book:
    """The state of one reconciliation of a SpatialQuery.

    Attributes:
        environment: shared clients and settings.
        body: the resource.
        status: its status, including what has been written in this reconciliation.
        wish: the query that it specifies.
        registrations: the queries that may be registered on its behalf.
        found: the registered query and its result rows so far, from the stream; None if unknown.
    """

    environment: Environment
    body: Object
    status: Object
    wish: Wish
    registrations: list[Registration] = field(default_factory=list)
    found: Object | None = None

    @classmethod
    def open(cls, environment: Environment, body: Object) -> _Book:
        metadata, status = body["metadata"], copy.deepcopy(body.get("status") or {})
        wish = Wish.of(metadata["namespace"], metadata["name"], body["spec"])
        return cls(environment, body, status, wish, registrations(status))

    @property
    def stream(self) -> str:
        """Name of the stream in ZooKeeper and Kafka."""
        return StreamNames(self.body["metadata"]["namespace"], self.wish.stream).stream

    @property
    def current(self) -> Registration | None:
        """The registration of the currently specified query."""
        return next((each for each in self.registrations if each.query == self.wish.id), None)

    @property
    def stood(self) -> bool:
        """Whether the registration of the specified query was confirmed, as far as is known."""
        return self.current is not None and self.current.taken

    async def keep(self, query: str, registration: Registration | None, **more: Any) -> None:
        """Store the registration of a query; None: it is no longer registered."""
        others = [each for each in self.registrations if each.query != query]
        self.registrations = others if registration is None else [*others, registration]
        await self.remember(registrations=[each.to_status() for each in self.registrations], **more)

    async def say(self, verdict: Verdict) -> None:
        """Write the condition, and create an event if it has changed."""
        metadata, before = self.body["metadata"], list(self.status.get("conditions") or [])
        known: Object = next((each for each in before if each.get("type") == CONDITION), {})
        after = condition(CONDITION, verdict, self.environment.now(), int(metadata.get("generation", 0)), known)
        # the last confirmed one: while a new query is rejected, the old one stays registered
        taken = [each for each in self.registrations if each.taken and verdict.reason not in _GONE]
        registered = taken[-1] if taken else None
        await self.remember(
            observedGeneration=after["observedGeneration"],
            query=None if registered is None else registered.query,
            since=None if registered is None else records.moment_text(registered.t),
            conditions=[after],
            **self._shown(registered),
        )
        if (note := news(before, after)) is not None:
            await emit(self.environment, self.body, note)

    def _shown(self, registered: Registration | None) -> Object:
        """The status fields of a registered query; known values are kept while the stream does not report any."""
        by, rows, last = None, None, None
        if registered is not None and registered.query == self.wish.id and self.found is not None:
            by, had = self.found["query"].get("by"), self.found["so_far"]
            rows, last = had["rows"], records.moment_text(had["last_row"])
        elif registered is not None and registered.query == records.text(self.status, "query"):
            return {}
        return {"by": by, "rows": rows, "lastRow": last}

    async def remember(self, **parts: Any) -> None:
        """Write parts of the status if they differ from what it holds."""
        metadata = self.body["metadata"]
        change, after = changes(self.status, parts)
        if change:
            await self.environment.cluster.patch_status(QUERY_KIND, metadata["name"], metadata["namespace"], change)
            self.status = after


async def _stand(book: _Book) -> Verdict:
    """Register what the resource specifies, and cancel everything else; return the condition."""
    gateway, wish = book.environment.gateway, book.wish
    stream = await book.environment.cluster.get(KIND, wish.stream, book.body["metadata"]["namespace"])
    hindered = hindrance(wish.stream, stream, gateway is not None, book.stood)
    if hindered is not None:
        return hindered
    assert stream is not None  # hindrance() returns a verdict without a stream or a gateway
    assert gateway is not None
    try:
        verdict = await _registered(book, gateway, stream["metadata"]["uid"])
        if verdict.reason != "Waiting":  # the old query stays registered until the new one is
            for each in [each for each in book.registrations if each.query != wish.id]:
                await _cancel(book, gateway, each)
    except Unavailable as error:
        return Verdict("Unknown" if book.stood else "False", "Unavailable", f"{str(error).rstrip('.')}.")
    except Refusal as refusal:
        reason = _REFUSALS.get(refusal.status, "Refused")
        old = next((each.query for each in book.registrations if each.taken and each.query != wish.id), None)
        rest = "" if old is None else f"; the previous query {old} is still registered"
        return Verdict("Unknown" if book.stood else "False", reason, f"{refusal.detail.rstrip('.')}{rest}.")
    return verdict


async def _registered(book: _Book, gateway: Gateway, uid: str) -> Verdict:
    """Make sure that the query is registered; return the condition."""
    wish, known = book.wish, book.current
    registered = await gateway.find(book.stream, wish.id)
    if registered is None:
        clock = await gateway.clock(book.stream)
        clock = book.environment.now() if clock is None else clock
        same = records.text(book.status, "streamUid") == uid
        wanted = next_registration(wish, known, clock, same)
        if wanted is None:
            return Verdict("False", "Ended", f"The query has expired; it was registered as {wish.id}.")
        await book.keep(wish.id, wanted, streamUid=uid)  # stored before it is sent
        try:
            taken = await gateway.register(book.stream, {**wish.record, "t": wanted.t, "by": wish.by})
        except Refusal as refusal:
            if refusal.status != 409:
                if wanted is not known:  # otherwise an earlier attempt may still be processed
                    await book.keep(wish.id, None)
                raise
            return Verdict("False", "Waiting", f"{refusal.detail.rstrip('.')}.")  # the next reconciliation finds it
        if not taken:
            return Verdict("False", "Waiting", "The registration is sent; the stream has not processed it yet.")
        registered = {"query": {"t": wanted.t}, "so_far": {"rows": None, "last_row": None}}
    book.found = registered
    await book.keep(wish.id, Registration(wish.id, int(registered["query"]["t"]), taken=True), streamUid=uid)
    return Verdict("True", "Registered", f"The query is registered as {wish.id}.")


async def _cancel(book: _Book, gateway: Gateway, registration: Registration) -> None:
    """Make sure that a query is no longer registered; an unconfirmed registration is cancelled without a check."""
    unseen = registration.taken and await gateway.find(book.stream, registration.query) is None
    if unseen or await gateway.cancel(book.stream, registration.query):
        await book.keep(registration.query, None)
    else:  # the cancellation is in the topic, after the registration: from now on it is sufficient to check
        await book.keep(registration.query, replace(registration, taken=True))
