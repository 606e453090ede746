"""Detection of dead watches: whatever a list shows, the watch must have shown too.

A watch that has died without an error looks like one without changes. So the streams are listed now and then, and the
resource version of each is compared with what the watch has delivered. If one differs for too long, the watch is dead.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from spatialstream_operator.cluster import Object

__all__ = ["Watch"]


class Watch:
    """Compares lists with what the watch has delivered. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._missing: dict[Hashable, dict[str, tuple[str, float]]] = {}

    def show(self, body: Object, deleted: bool = False) -> None:
        """Record that the watch has delivered an object, or its deletion."""
        metadata = body["metadata"]
        if deleted:
            self._shown.pop(metadata["uid"], None)
            for missing in self._missing.values():
                missing.pop(metadata["uid"], None)
        else:
            self._shown[metadata["uid"]] = metadata["resourceVersion"]

    def list(self, bodies: Iterable[Object], now: float, place: Hashable = None) -> None:
        """Record a list of objects; those whose current version the watch has not delivered count as missing.

        Args:
            bodies: all objects.
            now: the time.
            place: their kind and namespace, if there are several lists.
        """
        previous = self._missing.get(place, {})
        absences: dict[str, tuple[str, float]] = {}
        for body in bodies:
            uid, version = body["metadata"]["uid"], body["metadata"]["resourceVersion"]
            shown = self._shown.get(uid)
            if shown == version:
                continue
            last, since = previous.get(uid, (shown or "", now))
            # a new delivery restarts the time: for an object that changes all the time the watch is always behind
            absences[uid] = (last, since) if last == (shown or "") else (shown or "", now)
        self._missing[place] = absences

    def lag(self, now: float, *places: Hashable) -> float:
        """For how many seconds the watch has been missing a listed change; 0 if it misses none.

        Args:
            now: the time.
            places: which lists; none: all.
        """
        every = (since for place in places or self._missing for _, since in self._missing.get(place, {}).values())
        return max((now - since for since in every), default=0.0)
