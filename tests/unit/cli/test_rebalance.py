"""``spatialstream rebalance`` takes λ and ε of the stream, unless it is told others."""

from __future__ import annotations

import argparse

import pytest

from spatialstream.balance.settings import BalanceSettings
from spatialstream.cli import live, main, router
from spatialstream.store.memory import Memory, MemoryStore
from spatialstream.store.reports import read_balance, save_balance
from tests.api.play import first_version, report_skew


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
        router._keep_balance(parser.parse_args(options), store)


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
