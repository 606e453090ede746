"""Items that have moved: the actors that had them are told to forget them, and are not trusted until they have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any

from spatialstream.actors.registry import RegisteredActor

__all__ = ["Releases"]


class Releases:
    """Has actors release the items that others have now; one that does not is told again.

    Until it does, it is not trusted to know the newest round, which may be done without it. If it gets an item back
    that it has not released, it is trusted after the next round with it: its view of the item is from before.

    Args:
        ask: has an actor forget items, with a timeout in seconds.
        doubt: called with the names of all actors that are not trusted.
        seconds: for which answers are waited for.
    """

    def __init__(
        self,
        ask: Callable[[RegisteredActor, list[int], float], Future[Any]],
        doubt: Callable[[Iterable[str]], object],
        seconds: float = 2.0,
    ) -> None:
        self._ask, self._tell, self._seconds = ask, doubt, seconds
        self._held: dict[str, set[int]] = {}

    def settle(
        self, before: Mapping[int, str], placement: Mapping[int, str], actors: Sequence[RegisteredActor]
    ) -> None:
        """Tell actors what to release.

        Args:
            before: the name of the actor that had each item.
            placement: the name of the one that has it now.
            actors: all that are alive.
        """
        for item, name in before.items():
            if placement.get(item) != name:
                self._held.setdefault(name, set()).add(item)
        self._held = {actor.name: self._held.get(actor.name, set()) for actor in actors}
        self._doubt()
        calls = dict[Future[Any], tuple[str, list[int]]]()
        for actor in actors:
            moved = sorted(item for item in self._held[actor.name] if placement.get(item) != actor.name)
            if moved:
                calls[self._ask(actor, moved, self._seconds)] = actor.name, moved
        for call in wait(calls, timeout=self._seconds).done:
            if call.exception() is None:
                name, moved = calls[call]
                self._held[name].difference_update(moved)
        self._doubt()

    def round_done(self, placement: Mapping[int, str]) -> None:
        """Trust actors again that have got items back: with the round that is done they have views of them."""
        for name, items in self._held.items():
            items -= {item for item in items if placement.get(item) == name}
        self._doubt()

    def _doubt(self) -> None:
        self._tell([name for name, items in self._held.items() if items])
