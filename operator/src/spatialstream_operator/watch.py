"""Whether the watch is alive: what a list shows, the watch has to have shown too.

A watch that has died without an error looks like a stream at which nothing happens. So the streams are listed now and
then, and each one's version compared with what the watch has brought. What has been different for too long means that
the watch is dead.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from spatialstream_operator.cluster import Object

__all__ = ["Watch"]


class Watch:
    """Compares lists with what the watch has shown. Times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._missing: dict[Hashable, dict[str, tuple[str, float]]] = {}

    def show(self, body: Object, deleted: bool = False) -> None:
        """The watch has brought an object, or its end."""
        metadata = body["metadata"]
        if deleted:
            self._shown.pop(metadata["uid"], None)
            for missing in self._missing.values():
                missing.pop(metadata["uid"], None)
        else:
            self._shown[metadata["uid"]] = metadata["resourceVersion"]

    def list(self, bodies: Iterable[Object], now: float, place: Hashable = None) -> None:
        """A list has brought these objects: what the watch has not shown as it is begins to be missing, or still is.

        Args:
            bodies: all objects that there are.
            now: the time.
            place: where they are, and of which kind, if there are several lists.
        """
        known = self._missing.get(place, {})
        missing: dict[str, tuple[str, float]] = {}
        for body in bodies:
            uid, version = body["metadata"]["uid"], body["metadata"]["resourceVersion"]
            shown = self._shown.get(uid)
            if shown == version:
                continue
            last, since = known.get(uid, (shown or "", now))
            # what has been shown lately is on its way: a stream that changes all the time is always a moment behind
            missing[uid] = (last, since) if last == (shown or "") else (shown or "", now)
        self._missing[place] = missing

    def lag(self, now: float, *places: Hashable) -> float:
        """For how many seconds something that is listed has not been shown; 0 if there is no such thing.

        Args:
            now: the time.
            places: where; none: everywhere.
        """
        every = (since for place in places or self._missing for _, since in self._missing.get(place, {}).values())
        return max((now - since for since in every), default=0.0)
