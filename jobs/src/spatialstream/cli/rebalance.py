"""``spatialstream rebalance``: proposes a better balance of a live stream's slots, and carries it out."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from spatialstream.cli import live
from spatialstream.cli import options as shared
from spatialstream.model.errors import Conflict, RunError, SettingError, Unavailable

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "rebalance",
        help="move load between the slots of a live stream",
        description="Proposes a new routing version from the load statistics of the jobs, explains it, and carries it "
        "out while queries run: the slots exchange continuous queries, then the router adopts the version at an epoch. "
        "Interrupted at any point, it is completed by the jobs or can be taken back with --withdraw.",
    )
    parser.add_argument("--stream", required=True, metavar="NAME", help="the stream's name")
    live.add_store(parser)
    add = parser.add_argument
    add("--strategy", choices=("auto", "PM", "FM", "FG"), default="auto", help="default: the first that is enough")
    add("--lambda", dest="threshold", type=float, default=6.0, metavar="L", help="imbalance from Lmax/Lmin > L (6)")
    add("--epsilon", type=float, default=0.5, metavar="E", help="similarity above which FG splits by text (0.5)")
    add("--dry-run", action="store_true", help="propose and explain only")
    add("--no-wait", action="store_true", help="publish only; the jobs do the rest")
    add("--timeout", type=shared.duration, default=120_000, metavar="TIME", help="how long to wait (2m)")
    add("--picture", type=Path, metavar="FILE", help="write a picture of before and after (.svg)")
    add("--withdraw", action="store_true", help="take back the version that is pending")
    add("--quiet", action="store_true", help="say nothing but errors")
    parser.set_defaults(function=_rebalance)


def _rebalance(options: argparse.Namespace) -> int:
    from spatialstream.balance.proposal import propose
    from spatialstream.balance.settings import BalanceSettings
    from spatialstream.index.statistics import Statistics
    from spatialstream.pipeline.learning import STATISTICS
    from spatialstream.pipeline.metrics import read_load
    from spatialstream.report.rebalance import rebalance_svg

    settings = BalanceSettings(imbalance=options.threshold, similarity=options.epsilon)
    with live.store(options) as store:
        if options.withdraw:
            return _withdraw(store, options)
        state = store.state()
        counts, number, _ = read_load(store)
        known = store.load_statistics(STATISTICS)
        if known is None:
            raise SettingError("stream", "the router has not learned any statistics yet; it does every few seconds")
        if number != state.active.number:
            raise SettingError(
                "stream",
                f"the load statistics are of version {number}, and {state.active.number} is "
                "active; try again in a few seconds",
            )
        version = store.load(state.active.number)
        proposal = propose(
            version, counts, Statistics.from_arrays(*known), settings, options.strategy, number=state.last + 1
        )
        if proposal is None:
            live.say(options, "the slots are balanced; nothing to do (a --strategy can be forced)")
            return 0
        print(proposal.explain())
        if options.picture is not None:
            options.picture.write_text(rebalance_svg(proposal, version.index.space), "utf-8")
        if options.dry_run:
            return 0
        store.publish(proposal.version, state.active.number, proposal.id, proposal.to_record())
        live.say(options, f"version {proposal.version.number} is published (proposal {proposal.id})")
        return 0 if options.no_wait else _wait(store, proposal.version.number, options)


def _wait(store: Any, number: int, options: argparse.Namespace) -> int:
    began = time.monotonic()
    said = ""
    while time.monotonic() - began < options.timeout / 1000:
        view = store.latest()
        if view is not None:
            if view.active.number == number:
                live.say(options, f"active from epoch {view.active.epoch}, after {time.monotonic() - began:.1f} s")
                return 0
            if view.pending is None or view.pending.number != number:
                raise RunError(f"version {number} has been withdrawn")
            stage = "loading" if view.confirmed("exported") else "exporting"
            if stage != said:
                said = stage
                live.say(options, f"slots are {stage} continuous queries")
        time.sleep(0.1)
    raise RunError(f"version {number} is still pending; the jobs complete it when they run, --withdraw takes it back")


def _withdraw(store: Any, options: argparse.Namespace) -> int:
    state = store.state()
    if state.pending is None:
        live.say(options, "no version is pending")
        return 0
    try:
        store.withdraw(state.pending.number, state.pending.proposal)
    except (Conflict, Unavailable) as error:
        raise RunError(str(error)) from error
    live.say(options, f"version {state.pending.number} (proposal {state.pending.proposal}) is withdrawn")
    return 0
