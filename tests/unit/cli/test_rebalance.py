"""``spatialstream rebalance`` takes λ and ε of the stream, unless it is told others, and gives way to the operator."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spatialstream.balance.settings import BalanceSettings
from spatialstream.cli import live, main, router
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.store.base import RoutingState
from spatialstream.store.memory import Memory, MemoryStore
from spatialstream.store.reports import read_balance, read_sample, save_balance
from spatialstream.store.state import STAGES
from tests.api.play import SLOTS, first_version, report_skew
from tests.unit.index.samples import PLANE, obj


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """A stream whose heaviest slot has many times the load of the lightest."""
    memory = Memory()
    monkeypatch.setattr(live, "store", lambda options: MemoryStore(memory))
    with MemoryStore(memory) as store:
        store.create(first_version())
        report_skew(store, first_version())
    return memory


def rebalance(*options: str) -> int:
    return main(["rebalance", "--stream", "quakes", "--dry-run", *options])


def keep(memory: Memory, *options: str) -> None:
    """What a router does that is started with these options."""
    parser = argparse.ArgumentParser()
    live.add_balance(parser, "")
    parser.add_argument("--quiet", action="store_true")
    with MemoryStore(memory) as store:
        router.keep_balance(parser.parse_args(options), store)


@pytest.mark.parametrize(
    ("kept", "options", "threshold"),
    [
        (None, [], "6"),
        (BalanceSettings(imbalance=3.5), [], "3.5"),
        (BalanceSettings(imbalance=3.5), ["--lambda", "2.25"], "2.25"),
        (BalanceSettings(imbalance=3.5), ["--epsilon", "0.1"], "3.5"),
    ],
)
def test_lambda_is_that_of_the_stream_or_the_one_that_is_given(
    kept: BalanceSettings | None,
    options: list[str],
    threshold: str,
    memory: Memory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if kept is not None:
        save_balance(MemoryStore(memory), kept)

    assert rebalance(*options) == 0

    assert f"the threshold of {threshold})" in capsys.readouterr().out


def test_a_stream_within_its_own_lambda_is_left_alone(memory: Memory, capsys: pytest.CaptureFixture[str]) -> None:
    save_balance(MemoryStore(memory), BalanceSettings(imbalance=1e9))

    assert rebalance() == 0

    assert "the slots are balanced" in capsys.readouterr().err


def test_a_router_keeps_what_it_is_given_and_leaves_the_rest(memory: Memory) -> None:
    keep(memory)
    assert read_balance(MemoryStore(memory)) is None
    keep(memory, "--lambda", "3")
    assert read_balance(MemoryStore(memory)) == BalanceSettings(imbalance=3.0)
    keep(memory, "--epsilon", "0.25")
    assert read_balance(MemoryStore(memory)) == BalanceSettings(imbalance=3.0, similarity=0.25)
    keep(memory, "--similarity", "printed")
    keep(memory)
    assert read_balance(MemoryStore(memory)) == BalanceSettings(imbalance=3.0, similarity=0.25, printed=True)
    keep(memory, "--similarity", "weighted")
    assert read_balance(MemoryStore(memory)) == BalanceSettings(imbalance=3.0, similarity=0.25)


@pytest.mark.parametrize("command", ["router", "rebalance"])
@pytest.mark.parametrize(("option", "value"), [("--lambda", "0.5"), ("--lambda", "nan"), ("--epsilon", "2")])
def test_what_makes_no_sense_is_refused(
    command: str, option: str, value: str, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--checkpoint", str(tmp_path / "checkpoint")] if command == "router" else []

    assert main([command, "--stream", "quakes", *more, option, value]) == 2

    assert "; give " in capsys.readouterr().err


class Rivals(MemoryStore):
    """The store of a stream that the operator balances too: a version of its own is there before the first one by hand.

    Attributes:
        rivals: how many versions of the operator come before the first one by hand.
        tells: whether the worker tells the loads of the versions that are adopted.
        follows: whether the operator adopts a version right after one by hand.
    """

    rivals = 1
    tells = True
    follows = False

    def publish(self, version: RoutingVersion, base: int, proposal: str, record: Mapping[str, Any]) -> None:
        while self.rivals:
            self.rivals -= 1
            self.adopt(replace(version, number=self.state().last + 1), "the-operators")
        super().publish(version, base, proposal, record)
        self.confirm(version)
        if self.follows:
            self.adopt(replace(version, number=version.number + 1), "the-operators")

    def adopt(self, version: RoutingVersion, proposal: str) -> None:
        super().publish(version, self.state().active.number, proposal, {})
        self.confirm(version)

    def confirm(self, version: RoutingVersion) -> None:
        for stage in STAGES:
            self.acknowledge(version.number, stage, range(version.slots))
        self.activate(version.number, self.state().active.epoch + 1)
        if self.tells:
            report_skew(self, version)


def test_a_version_of_the_operator_in_between_is_taken_into_account(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Rivals(memory)
    monkeypatch.setattr(live, "store", lambda options: store)

    assert main(["rebalance", "--stream", "quakes", "--strategy", "FM"]) == 0

    out, err = capsys.readouterr()
    assert "from version 0 to 1" in out
    assert "from version 1 to 2" in out
    assert "version 1 was computed from version 0, but version 1 is active; computing the proposal again" in err
    assert store.state().active.number == 2


def test_a_version_of_the_operator_right_after_is_no_withdrawal(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Rivals(memory)
    store.rivals, store.follows = 0, True
    monkeypatch.setattr(live, "store", lambda options: store)

    assert main(["rebalance", "--stream", "quakes", "--strategy", "FM"]) == 0

    assert "active from epoch 1," in capsys.readouterr().err
    assert store.state().active.number == 2


@pytest.mark.parametrize("stale", [0, 3])
def test_what_is_known_here_may_be_older_than_what_was_published(
    stale: int, memory: Memory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Behind(Rivals):
        before = MemoryStore(memory).state()
        left = stale

        def latest(self) -> RoutingState | None:
            self.left -= 1
            return super().latest() if self.left < 0 else self.before

    store = Behind(memory)
    store.rivals = 0
    monkeypatch.setattr(live, "store", lambda options: store)

    assert main(["rebalance", "--stream", "quakes", "--strategy", "FM"]) == 0

    assert "active from epoch 1," in capsys.readouterr().err


def test_it_waits_for_the_loads_of_the_version_that_is_active(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Late(Rivals):
        looks = 3

        def load_statistics(self, name: str) -> Any:
            self.looks -= 1
            if not self.looks:
                report_skew(self, self.load(1))
            return super().load_statistics(name)

    store = Late(memory)
    store.rivals, store.tells = 0, False
    store.adopt(replace(first_version(), number=1), "the-operators")
    monkeypatch.setattr(live, "store", lambda options: store)

    assert main(["rebalance", "--stream", "quakes", "--strategy", "FM", "--dry-run"]) == 0

    out, err = capsys.readouterr()
    assert err.count("the load statistics are of version 0, and 1 is active; waiting") == 1
    assert "from version 1 to 2" in out


@pytest.mark.parametrize("strategy", ["PM", "FG"])
def test_what_is_proposed_is_of_one_moment(
    strategy: str, memory: Memory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A version with other leaves is adopted meanwhile: its loads are not taken for those of the old one's leaves."""
    sample = read_sample(MemoryStore(memory))
    assert sample is not None
    finer = replace(build(PLANE, sample.objects, sample.queries, 64, SLOTS), number=1)

    class Adopted(Rivals):
        rivals, looks = 0, 0

        def load_statistics(self, name: str) -> Any:
            known = super().load_statistics(name)
            self.looks += name == "load"
            if name == "load" and self.looks == 1:
                self.adopt(finer, "the-operators")
            return known

    store = Adopted(memory)
    monkeypatch.setattr(live, "store", lambda options: store)

    assert main(["rebalance", "--stream", "quakes", "--strategy", strategy]) == 0

    out, err = capsys.readouterr()
    assert "from version 0 to 1" not in out or "computing the proposal again" in err
    assert "from version 1 to 2" in out
    assert store.state().active.number == 2


@pytest.mark.parametrize(
    ("pending", "problem"),
    [
        (True, "version 2 is pending (proposal the-operators); try again in a few seconds"),
        (False, "the load statistics are of version 0, and 1 is active; try again in a few seconds"),
    ],
)
@pytest.mark.parametrize("options", [["--timeout", "150ms"], ["--no-wait"]])
def test_it_does_not_wait_for_longer_than_it_is_told(
    pending: bool, problem: str, options: list[str], memory: Memory, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Rivals(memory)
    store.tells = False
    store.adopt(replace(first_version(), number=1), "the-operators")
    if pending:
        MemoryStore(memory).publish(replace(first_version(), number=2), 1, "the-operators", {})

    assert main(["rebalance", "--stream", "quakes", "--strategy", "FM", *options]) == 2

    assert problem in capsys.readouterr().err


def test_an_a_grid_is_split_and_merged_or_shifted_and_refuses_fg(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    memory, picture = Memory(), tmp_path / "moves.svg"
    monkeypatch.setattr(live, "store", lambda options: MemoryStore(memory))
    places = [obj(f"o{i}", i % 8 * 0.5, i % 7 * 0.5, "ab") for i in range(64)]
    first = build(PLANE, ObjectBatch.of(places), QueryBatch.of([]), 16, SLOTS, kind="a-grid")
    with MemoryStore(memory) as store:
        store.create(first)
        report_skew(store, first)

    assert rebalance("--strategy", "SM", "--picture", str(picture)) == 0
    said = r"SM, from version 0 to 1\n.*\n\d+ lea.* split, \d+ pairs? merged: 16 -> 16 leaves"
    assert re.search(said, capsys.readouterr().out)
    assert picture.read_text().startswith("<svg")
    assert rebalance("--strategy", "SH") == 0
    assert "SH, from version 0 to 1" in capsys.readouterr().out
    assert rebalance("--strategy", "FG") == 2
    assert "'FG' is not one of kind a-grid: auto, PM, FM, SM, SH, rebuild" in capsys.readouterr().err


def test_another_kind_of_index_is_made_by_a_rebuild_alone(memory: Memory, capsys: pytest.CaptureFixture[str]) -> None:
    assert rebalance("--index", "a-grid") == 2
    assert "index: another kind of index is made by a rebuild; give --strategy rebuild too" in capsys.readouterr().err
    with MemoryStore(memory) as store:
        report_skew(store, first_version(), 2_000)

    published = []
    for kind in ("a-grid", "auto"):
        assert main(["rebalance", "--stream", "quakes", "--no-wait", "--strategy", "rebuild", "--index", kind]) == 0
        with MemoryStore(memory) as store:
            state = store.state()
            assert state.pending is not None
            published.append((store.load(state.pending.number).index.kind, state.pending.record["reason"]))
            for stage in STAGES:
                store.acknowledge(state.pending.number, stage, range(state.slots))
            store.activate(state.pending.number, 10 * state.pending.number)
            after = store.state()
            assert (after.kind, after.reason) == published[-1]
            report_skew(store, store.load(after.active.number), 2_000)
    assert published[0] == ("a-grid", "")
    assert "the slowest slot of" in published[1][1]
