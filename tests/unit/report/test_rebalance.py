"""The picture of a proposal: every leaf and slot is there, and what moves stands out."""

import re
import xml.etree.ElementTree as ET

import pytest

from spatialstream.balance.proposal import propose
from spatialstream.balance.settings import BalanceSettings
from spatialstream.model.space import WGS84
from spatialstream.report.rebalance import rebalance_svg
from tests.unit.balance.test_proposal import skewed
from tests.unit.index.samples import PLANE

SVG = "{http://www.w3.org/2000/svg}"


def picture(strategy, counts=(10.0,) * 16, slots=3, **how):
    mapping = [0] * 10 + [1] * 5 + [2]
    proposal = propose(*skewed(list(counts), mapping, slots), BalanceSettings(), strategy)
    return proposal, ET.fromstring(rebalance_svg(proposal, PLANE, **how))


def part(root, name):
    return next(each for each in root.iter(f"{SVG}g") if each.get("id") == f"qt-{name}")


def framed(group, kind):
    return {int(each.get("data-leaf")) for each in group.iter(f"{SVG}rect") if each.get("class") == kind}


@pytest.mark.parametrize("strategy", ["PM", "FM", "FG"])
def test_moved_leaves_are_framed_and_the_others_pale(strategy):
    proposal, root = picture(strategy, counts=[10_000.0] + [1.0] * 15)

    before, after = part(root, "before"), part(root, "after")

    assert len(proposal.moves) > 0
    assert framed(before, "leaves") == set(proposal.moves.source.tolist())
    assert framed(after, "comes") == set(proposal.moves.leaf.tolist())
    pale = [each for each in after.iter(f"{SVG}rect") if each.get("class") == "still"]
    assert len(pale) == len(proposal.loads_after) - len(framed(after, "comes"))
    origin = {int(e.get("data-leaf")): int(e.get("data-from")) for e in after.iter(f"{SVG}rect") if e.get("data-from")}
    pairs = set(zip(proposal.moves.leaf.tolist(), proposal.moves.old_slot.tolist(), strict=True))
    assert set(origin.items()) <= pairs


def test_bars_are_as_high_as_the_loads():
    proposal, root = picture("PM")

    bars = [float(each.get("height")) for each in root.iter(f"{SVG}rect") if each.get("class") == "bar"]

    loads = [load for pair in zip(proposal.before, proposal.after, strict=True) for load in pair]
    assert bars == pytest.approx([170.0 * load / max(loads) for load in loads], abs=0.06)


@pytest.mark.parametrize("slots", [3, 200])
def test_it_loads_nothing_and_says_what_it_shows(slots):
    proposal, _ = picture("FM", slots=slots)
    text = rebalance_svg(proposal, WGS84, width=900)

    ET.fromstring(text)
    assert set(re.findall(r"\w+://[^\s\"'<]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"href|<script|<image|@import", text)
    assert proposal.id in text
    assert ("the first 128 of 200" in text) == (slots == 200)


def test_it_refuses_a_width_without_room():
    proposal, _ = picture("FM")

    with pytest.raises(ValueError, match="at least 720"):
        rebalance_svg(proposal, PLANE, width=500)
