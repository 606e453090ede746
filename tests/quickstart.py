"""The commands of the quick start on Kubernetes, and how a test follows them elsewhere than on a new kind cluster."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGE", "Step", "adapted", "skipped", "steps"]

PAGE = Path(__file__).parents[1] / "docs" / "quickstart-kubernetes.md"

_SKIPPED = {
    r"kind ": "there is a cluster",
    r"make images$": "its nodes have the images",
    r"kubectl create namespace ": "there are namespaces",
    r"helm ": "both charts are installed with values for this cluster; tests/charts renders what stands here",
    r"kubectl .* delete pod ": "test_platform kills everything there is",
    r"kubectl .* port-forward ": "test_gateway asks, registers and follows from within the cluster",
    r"TOKEN=|curl ": "as above",
}
"""Beginnings of commands that are not followed, and why."""

_REPLACED = {
    r"\bquakes\b": "{stream}",
    r"\bspatialstream-system\b": "{system}",
    r"\bgeo\b": "{namespace}",
    # what a person looks at until they have seen enough
    r"get sps( {stream})? --watch$": "wait sps/{stream} --for=condition=Ready --timeout=300s",
    r" --watch$": "",
    r"--patience 10s$": "--count 5",
    r"(query .* --type CRQ .*)": r"\1 --count 3",
    # long enough to ask and to rebalance meanwhile
    r"--seconds 120 ": "--seconds {seconds} --settle 1 ",
}
"""Parts of commands, and what stands there in a test."""


@dataclass(frozen=True)
class Step:
    """A command.

    Attributes:
        section: its heading.
        line: as it is written, on one line.
    """

    section: str
    line: str


def steps() -> list[Step]:
    """All commands, in their order."""
    found, section = [], ""
    for block in re.finditer(
        r"^## ([^\n]+)$|^```console\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    ):
        section = block[1] or section
        lines = re.findall(r"^\$ (.*)$", re.sub(r"\\\n\s*", "", block[2] or ""), re.MULTILINE)
        found += [Step(section, line) for line in lines]
    return found


def skipped(step: Step) -> str | None:
    """Why a command is not followed; None if it is."""
    return next((reason for beginning, reason in _SKIPPED.items() if re.match(beginning, step.line)), None)


def adapted(step: Step, **names: object) -> list[str]:
    """The words of a command as they are run.

    Args:
        step: the command.
        names: ``stream``, ``namespace``, ``system`` and ``seconds`` of sending.
    """
    line = step.line
    for part, instead in _REPLACED.items():
        line = re.sub(part, instead, line)
    return [word.format(**names) for word in shlex.split(line)]
