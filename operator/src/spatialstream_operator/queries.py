"""The reconciliation of one SpatialQuery: it is registered with its stream, monitored, and finally cancelled.

A registration is written to the status before it is sent, and removed when the query is known to be no longer
registered. So an operator that is restarted at any moment continues from there: it registers each query once, and
leaves none behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from spatialstream_operator.cluster import Object
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.balance import Verdict
from spatialstream_operator.decisions.registration import (
    NO_STREAM,
    Registration,
    Wish,
    next_registration,
    registrations,
)
from spatialstream_operator.environment import Environment
from spatialstream_operator.gateway import Gateway, Refusal
from spatialstream_operator.names import QUERY_KIND
from spatialstream_operator.stream_resource import ResourceController, StreamResource

__all__ = ["CONDITION", "QueryController", "remove_query"]

CONDITION = "Registered"

_STEADY = 6
"""Reconciliation intervals between two reconciliations of a query in steady state."""
_SETTLED = frozenset({"Registered", "Refused", "Ended"})
_GONE = NO_STREAM | {"Ended"}
"""With these reasons nothing is registered, whatever was registered before."""


@dataclass(slots=True)
class _Query(StreamResource):
    """A SpatialQuery.

    Attributes:
        wish: the query that it specifies.
        registrations: the queries that may be registered on its behalf.
        found: the registered query and its result rows so far, from the stream; None if unknown.
    """

    kind = QUERY_KIND
    condition_type = CONDITION
    refusals: ClassVar[Mapping[int, str]] = {401: "NotAllowed", 403: "NotAllowed"}
    withdrawing = "Cancelling"

    wish: Wish = field(init=False)
    registrations: list[Registration] = field(init=False)
    found: Object | None = None

    def __post_init__(self) -> None:
        """Read the spec and the status."""
        metadata = self.body["metadata"]
        self.wish = Wish.of(metadata["namespace"], metadata["name"], self.body["spec"])
        self.registrations = registrations(self.status)

    @property
    def current(self) -> Registration | None:
        """The registration of the currently specified query."""
        return next((each for each in self.registrations if each.query == self.wish.id), None)

    @property
    def confirmed(self) -> bool:
        """Whether the registration of the specified query was confirmed, as far as is known."""
        return self.current is not None and self.current.confirmed

    @property
    def sent(self) -> bool:
        """Whether a query may be registered on its behalf."""
        return bool(self.registrations)

    async def keep(self, query: str, registration: Registration | None, **more: Any) -> None:
        """Store the registration of a query; None: it is no longer registered."""
        others = [each for each in self.registrations if each.query != query]
        self.registrations = others if registration is None else [*others, registration]
        await self.remember(registrations=[each.to_status() for each in self.registrations], **more)

    async def say(self, verdict: Verdict, **parts: Any) -> None:
        """Write the condition and which query is registered, and create an event if the condition has changed."""
        # the last confirmed one: while a new query is rejected, the old one stays registered
        confirmed = [each for each in self.registrations if each.confirmed and verdict.reason not in _GONE]
        registered = confirmed[-1] if confirmed else None
        await StreamResource.say(
            self,
            verdict,
            query=None if registered is None else registered.query,
            since=None if registered is None else records.moment_text(registered.t),
            **self._shown(registered),
            **parts,
        )

    def _shown(self, registered: Registration | None) -> Object:
        """The status fields of a registered query; known values are kept while the stream does not report any."""
        by, rows, last = None, None, None
        if registered is not None and registered.query == self.wish.id and self.found is not None:
            by, had = self.found["query"].get("by"), self.found["so_far"]
            rows, last = had["rows"], records.moment_text(had["last_row"])
        elif registered is not None and registered.query == records.text(self.status, "query"):
            return {}
        return {"by": by, "rows": rows, "lastRow": last}

    async def apply(self, gateway: Gateway, uid: str) -> Verdict:
        """Register what the resource specifies, and cancel everything else; return the condition."""
        verdict = await self._register(gateway, uid)
        if verdict.reason != "Waiting":  # the old query stays registered until the new one is
            for each in [each for each in self.registrations if each.query != self.wish.id]:
                await self._cancel(gateway, each)
        return verdict

    async def _register(self, gateway: Gateway, uid: str) -> Verdict:
        """Make sure that the query is registered; return the condition."""
        wish, previous = self.wish, self.current
        registered = await gateway.find(self.served, wish.id)
        if registered is None:
            clock = await gateway.clock(self.served)
            clock = self.environment.now() if clock is None else clock
            same = records.text(self.status, "streamUid") == uid
            registration = next_registration(wish, previous, clock, same)
            if registration is None:
                return Verdict("False", "Ended", f"The query has expired; it was registered as {wish.id}.")
            await self.keep(wish.id, registration, streamUid=uid)  # stored before it is sent
            if waits := await self._send(gateway, registration, again=registration is previous):
                return Verdict("False", "Waiting", waits)
            registered = {"query": {"t": registration.t}, "so_far": {"rows": None, "last_row": None}}
        self.found = registered
        await self.keep(wish.id, Registration(wish.id, int(registered["query"]["t"]), confirmed=True), streamUid=uid)
        return Verdict("True", "Registered", f"The query is registered as {wish.id}.")

    async def _send(self, gateway: Gateway, wanted: Registration, *, again: bool) -> str:
        """Send a registration that is stored; return why it is not confirmed yet, "" if it is."""
        record = {**self.wish.record, "t": wanted.t, "by": self.wish.by}
        try:
            confirmed = await gateway.register(self.served, record)
        except Refusal as refusal:
            if refusal.status == 409:
                return f"{refusal.detail.rstrip('.')}."  # the next reconciliation finds it
            if not again:  # otherwise an earlier attempt may still be processed
                await self.keep(self.wish.id, None)
            raise
        return "" if confirmed else "The registration is sent; the stream has not processed it yet."

    async def _cancel(self, gateway: Gateway, registration: Registration) -> None:
        """Make sure that a query is no longer registered; an unconfirmed registration is cancelled without a check."""
        unseen = registration.confirmed and await gateway.find(self.served, registration.query) is None
        if unseen or await gateway.cancel(self.served, registration.query):
            await self.keep(registration.query, None)
        else:  # the cancellation is in the topic, after the registration: from now on it is sufficient to check
            await self.keep(registration.query, replace(registration, confirmed=True))

    async def withdraw(self, gateway: Gateway) -> str:
        """Cancel all registrations."""
        for each in self.registrations:
            await self._cancel(gateway, each)
        return "The query is being cancelled" if self.registrations else ""

    async def keep_refused(self, reason: str) -> str:
        """Which earlier query is still registered."""
        old = next((each.query for each in self.registrations if each.confirmed and each.query != self.wish.id), None)
        return "" if old is None else f"; the previous query {old} is still registered"

    def is_uncertain(self, reason: str) -> bool:
        """Whether the query may be registered all the same."""
        return self.confirmed

    async def lose_stream(self) -> None:
        """Registrations stay in the status: a stream of the same name that is created later gets the query anew."""

    def pause(self, verdict: Verdict) -> float:
        """Longer if nothing is expected to change by itself."""
        return _STEADY if verdict.reason in _SETTLED and len(self.registrations) <= 1 else 1


class QueryController(ResourceController):
    """Reconciles one SpatialQuery until it is stopped, or the resource is gone."""

    resource = _Query

    def begun(self) -> None:
        """Begin the metrics of the query."""
        self._environment.metrics.begin_query(self._namespace, self._name)

    def _measure(self, served: bool) -> None:
        self._environment.metrics.query_registered.labels(self._namespace, self._name).set(served)

    def _count(self, outcome: str, seconds: float) -> None:
        self._environment.metrics.query_reconciles.labels(self._namespace, self._name, outcome).inc()


async def remove_query(environment: Environment, body: Object) -> bool:
    """Continue the removal of a SpatialQuery; True when nothing of it is registered any more.

    See :meth:`~spatialstream_operator.stream_resource.StreamResource.remove`.
    """
    removed = await _Query.open(environment, body).remove()
    if removed:
        environment.metrics.end_query(body["metadata"]["namespace"], body["metadata"]["name"])
    return removed
