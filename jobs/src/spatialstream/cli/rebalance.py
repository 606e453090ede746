"""``spatialstream rebalance``: propose a better balance of a live stream's slots, and carry it out.

For a stream on Kubernetes the operator does this by itself; in mode ``approve`` it waits for a user's approval, an
annotation that holds the id of the proposal (:data:`APPROVAL`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialstream.cli import kubernetes, live
from spatialstream.cli import options as shared
from spatialstream.cli.pod_session import write_file
from spatialstream.connectors.program import program
from spatialstream.index.kinds import STRATEGIES
from spatialstream.model.errors import Conflict, RunError, SettingError, Unavailable

if TYPE_CHECKING:
    from spatialstream.balance.proposal import Proposal
    from spatialstream.store.base import RoutingState, RoutingStore
    from spatialstream.store.reports import LoadReport

__all__ = ["APPROVAL", "add_parser"]

APPROVAL = "spatialstream.dev/approve"
"""The annotation of a SpatialStream that holds the id of the proposal that may be carried out."""

_UNDER_WAY = ("Adopting", "Verifying")
_POLL = 0.1
"""Seconds between two reads of the routing store."""


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "rebalance",
        help="move load between the slots of a live stream",
        description="Proposes a new routing version from the load statistics of the jobs, explains it, and carries it "
        "out while queries run: the slots exchange continuous queries, then the router adopts the version at an epoch. "
        "If the command is interrupted, the jobs complete the version, or --withdraw takes it back.",
    )
    live.add_stream(parser)
    live.add_store(parser)
    kubernetes.add_cluster(parser)
    add = parser.add_argument
    add(
        "--strategy",
        choices=("auto", *STRATEGIES),
        default="auto",
        help="how to rebalance (default auto: the first strategy of the index's kind that suffices)",
    )
    text = "kind of index that --strategy rebuild makes (default: the one that there is)"
    shared.add_index(parser, None, text)
    live.add_balance(parser, "the stream's own")
    add("--dry-run", action="store_true", help="propose and explain only")
    add("--no-wait", action="store_true", help="publish the version, and do not wait for the jobs to adopt it")
    add("--timeout", type=shared.duration, default=120_000, metavar="TIME", help="how long to wait (default 2m)")
    add("--picture", type=Path, metavar="FILE", help="write a picture of the leaves before and after (.svg)")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--withdraw", action="store_true", help="withdraw the pending version")
    for word, does in (("approve", "carry out"), ("reject", "not carry out")):
        either.add_argument(
            f"--{word}",
            nargs="?",
            const="",
            metavar="ID",
            help=f"let the operator {does} the proposal of this id (default: the one in the stream's status)",
        )
    add("--quiet", action="store_true", help="print only the explanation and errors")
    parser.set_defaults(function=_rebalance)


def _rebalance(options: argparse.Namespace) -> int:
    for word in ("approve", "reject"):
        if getattr(options, word) is not None:
            return _decide(options, word, getattr(options, word))
    if options.index is not None and options.strategy != "rebuild":
        raise SettingError("index", "another kind of index is made by a rebuild; give --strategy rebuild too")
    live.balance(options)
    if kubernetes.asked(options):
        files = [] if options.picture is None else [options.picture]
        names = ("strategy", "index", "epsilon", "timeout", "picture", "dry_run", "no_wait", "withdraw")
        threshold = [] if options.threshold is None else ["--lambda", str(options.threshold)]
        return kubernetes.run_in_pod(options, threshold + kubernetes.again(options, *names), files=files)
    with live.store(options) as store:
        return _withdraw(store, options) if options.withdraw else _carry_out(store, options)


def _carry_out(store: RoutingStore, options: argparse.Namespace) -> int:
    """Compute a proposal and publish it; repeat if another version was adopted meanwhile.

    The operator rebalances whenever it has to, so a version may be pending or may just have become active. Rather than
    ask the user to try again, the command waits up to ``--timeout`` for the state that it needs.
    """
    deadline = time.monotonic() + (0.0 if options.no_wait else options.timeout / 1000)
    while True:
        state, load = _settled(store, deadline, options)
        proposal = _propose(store, state, load, options)
        if proposal is None:
            live.say(options, "the slots are balanced; nothing to do (--strategy forces a proposal)")
            return 0
        _show(proposal, options)
        if options.dry_run:
            return 0
        try:
            store.publish(proposal.version, state.active.number, proposal.id, proposal.to_record())
        except Conflict as conflict:
            if time.monotonic() >= deadline:
                raise
            live.say(options, f"{conflict}; computing the proposal again")
            continue
        live.say(options, f"version {proposal.version.number} is published (proposal {proposal.id})")
        return 0 if options.no_wait else _wait(store, proposal.version.number, options)


def _settled(store: RoutingStore, deadline: float, options: argparse.Namespace) -> tuple[RoutingState, LoadReport]:
    """Wait until no other version is pending and the load statistics are of the active version; return both.

    Raises:
        SettingError: this is not so at the deadline.
    """
    from spatialstream.store.reports import read_load

    reported = ""
    while True:
        state = store.state()
        if state.pending is not None and not options.dry_run:
            reason = f"version {state.pending.number} is pending (proposal {state.pending.proposal})"
        elif (load := read_load(store)).version != state.active.number:
            reason = f"the load statistics are of version {load.version}, and {state.active.number} is active"
        else:
            return state, load
        if time.monotonic() >= deadline:
            raise SettingError("stream", f"{reason}; try again in a few seconds")
        if reason != reported:
            reported = reason
            live.say(options, f"{reason}; waiting")
        time.sleep(_POLL)


def _propose(
    store: RoutingStore, state: RoutingState, load: LoadReport, options: argparse.Namespace
) -> Proposal | None:
    """Compute a proposal from the jobs' reports; None if there is nothing to do."""
    from spatialstream.balance.proposal import propose
    from spatialstream.store.reports import read_balance, read_sample

    sample = read_sample(store)
    if sample is None:
        problem = "the router has not stored any statistics yet; it does so every few seconds, try again then"
        raise SettingError("stream", problem)
    version = store.load(state.active.number)
    settings = live.balance(options, read_balance(store))
    known = sample.statistics()
    return propose(version, load.counts, known, settings, options.strategy, state.last + 1, sample, options.index)


def _show(proposal: Proposal, options: argparse.Namespace) -> None:
    from spatialstream.balance.explanation import explanation
    from spatialstream.report.rebalance import rebalance_svg

    print(explanation(proposal), flush=True)
    if options.picture is not None:
        write_file(options, options.picture, rebalance_svg(proposal, proposal.version.index.space))


def _decide(options: argparse.Namespace, word: str, asked: str) -> int:
    """Approve the operator's proposal, or take an approval back."""
    kubectl = kubernetes.Kubectl.of(options)
    proposal = _waiting(kubernetes.resource(kubectl, options.stream), word, asked)
    if proposal.get("text"):
        print(proposal["text"], flush=True)
    annotation = f"{APPROVAL}={proposal['id']}" if word == "approve" else f"{APPROVAL}-"
    kubectl.run("annotate", kubernetes.RESOURCE, options.stream, annotation, "--overwrite")
    outcome = "approved; the operator carries it out" if word == "approve" else "rejected; it is not carried out"
    live.say(options, f"proposal {proposal['id']} is {outcome}")
    return 0


def _waiting(stream: Mapping[str, Any], word: str, asked: str) -> dict[str, Any]:
    """The proposal that waits for a decision; ``asked`` is its expected id, or empty for any."""
    mode = stream["spec"].get("rebalance", {}).get("mode", "auto")
    if mode != "approve":
        raise SettingError(word, f"the stream's rebalance.mode is {mode}; only mode approve waits for a decision")
    state = stream.get("status", {}).get("rebalance", {})
    proposal = state.get("proposal")
    if not proposal:
        raise SettingError(word, f"there is no proposal; when there is one, {program()} status shows it")
    if asked and asked != proposal["id"]:
        raise SettingError(word, f"{asked!r} is not the current proposal, which is {proposal['id']}")
    if state.get("phase") in _UNDER_WAY:
        raise SettingError(word, f"{proposal['id']} is being carried out; --withdraw takes back a pending version")
    return dict(proposal)


def _wait(store: Any, number: int, options: argparse.Namespace) -> int:
    began = time.monotonic()
    reported = ""
    while time.monotonic() - began < options.timeout / 1000:
        view = store.latest()
        if view is not None:
            adopted = next((each for each in view.bindings if each.number == number), None)
            if adopted is not None:  # perhaps replaced by a later one since
                live.say(options, f"active from epoch {adopted.epoch}, after {time.monotonic() - began:.1f} s")
                return 0
            known = view.last >= number  # this view of the store may be older than the publication
            if known and (view.pending is None or view.pending.number != number):
                raise RunError(f"version {number} has been withdrawn")
            stage = "loading" if view.confirmed("exported") else "exporting"
            if known and stage != reported:
                reported = stage
                live.say(options, f"slots are {stage} continuous queries")
        time.sleep(_POLL)
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
