"""Assigns slots to actors: as few moves as possible, and no actor with much more work than the others.

A pure function of the measured work. Slots stay where they are while the load is about even, because a slot that moves
is read from the storage again; two heavy slots do not share an actor if there is another way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

__all__ = ["placed"]

_WORTH = 0.15
"""Share of an actor's mean load by which a move has to reduce the largest load."""


def placed(
    items: Iterable[int],
    actors: Sequence[str],
    before: Mapping[int, str],
    work: Mapping[int, float],
    *,
    even: bool,
    leaving: Collection[str] = (),
) -> dict[int, str]:
    """The actor of each item.

    Args:
        items: slots, or partitions.
        actors: the live actors; at least one.
        before: the previous placement, which may name actors that have gone.
        work: seconds of work of items in a period, as far as measured.
        even: whether items that have an actor may move; otherwise only items without one are placed.
        leaving: actors that get nothing as long as there are others.

    Returns:
        For each item one of the actors.
    """
    ordered = sorted(set(items))
    measured = [work[item] for item in ordered if work.get(item)]
    usual = sum(measured) / len(measured) if measured else 1.0
    cost = {item: work.get(item) or usual for item in ordered}
    staying = [actor for actor in actors if actor not in leaving] or actors
    homes = staying if even else actors
    result = {item: before[item] for item in ordered if before.get(item) in homes}
    load = dict.fromkeys(actors, 0.0)
    for item, actor in result.items():
        load[actor] += cost[item]
    for item in sorted(ordered, key=lambda item: (-cost[item], item)):
        if item not in result:
            actor = min(staying, key=lambda each: load[each])
            result[item] = actor
            load[actor] += cost[item]
    while even:
        high, low = max(staying, key=lambda each: load[each]), min(staying, key=lambda each: load[each])
        gap = load[high] - load[low]
        movable = [item for item, actor in result.items() if actor == high and cost[item] < gap]
        if not movable:
            break
        gain = {item: round(min(cost[item], gap - cost[item]), 9) for item in movable}
        item = min(movable, key=lambda each: (-gain[each], cost[each], each))  # of equal gains, the lightest item
        if gain[item] < _WORTH * sum(load.values()) / len(staying):
            break
        result[item] = low
        load[high] -= cost[item]
        load[low] += cost[item]
    return result
