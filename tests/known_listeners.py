"""What may listen: the table in docs/production.md, and who of it each listener is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import listening as listening_script
from tests import strangers as strangers_script
from tests.listening import Listener, role

__all__ = ["TABLE", "Documented", "documented", "named", "named_where"]


@dataclass(frozen=True)
class Documented:
    """A row of the table.

    Attributes:
        process: as :func:`~tests.listening.role` gives it.
        what: listens.
        reached: from ``loopback``, or from outside the ``pod`` too.
        ports: on Kubernetes; none: any.
        strangers: what who shows nothing gets.
    """

    process: str
    what: str
    reached: str
    ports: tuple[int, ...]
    strangers: str

    def fits(self, listener: Listener, *, ports: bool) -> bool:
        """Whether a listener may be this, by where it is.

        Args:
            listener: is looked at.
            ports: whether ports are those of Kubernetes; there those on loopback are any.
        """
        right = role(listener.command) == self.process
        known = not ports or not self.ports or listener.is_loopback or listener.port in self.ports
        return right and known and (listener.is_loopback or self.reached != "loopback")


def documented(text: str) -> list[Documented]:
    """The table of what listens.

    Args:
        text: of docs/production.md.
    """
    _, _, section = text.partition("### What listens\n")
    lines = [line for line in section.partition("\n#")[0].splitlines() if line.startswith("|")]
    rows = [[cell.strip().replace("**", "") for cell in line.strip("|").split("|")] for line in lines[2:]]
    return [_documented(*row) for row in rows]


def _documented(process: str, what: str, reached: str, ports: str, strangers: str) -> Documented:
    given = () if ports == "any" else tuple(int(each) for each in ports.split(","))
    return Documented(process, what, reached, given, strangers)


TABLE = documented((Path(__file__).parents[1] / "docs" / "production.md").read_text("utf-8"))
"""What may listen in the pods of operator, gateway and streams."""


def named(
    listening: Iterable[Listener],
    attempt: Callable[[str, int, str], str | None],
    table: Sequence[Documented] = TABLE,
    *,
    ports: bool,
    at_once: int = 1,
) -> list[tuple[Listener, Documented]]:
    """Which row of the table each listener is, by what it says to strangers; a row is one socket of a process.

    Args:
        listening: what listens.
        attempt: tries what is at a host and port as a stranger; None where it is what it is said to be, and refuses.
        table: what may.
        ports: see :meth:`Documented.fits`.
        at_once: processes that are tried at a time: who is spoken to in the wrong way may say nothing for long.

    Raises:
        AssertionError: there is something else, or something that does not refuse; all of it is named.
    """
    by_process: dict[tuple[int, ...], list[Listener]] = {}
    ports_known = set[tuple[int, tuple[int, ...]]]()
    for each in listening:
        if each.address in ("0.0.0.0", "::"):  # by both versions of IP it is the same
            if (each.port, each.processes) in ports_known:
                continue
            ports_known.add((each.port, each.processes))
        by_process.setdefault(each.processes, []).append(each)

    def of_process(listeners: Sequence[Listener]) -> tuple[list[tuple[Listener, Documented]], list[str]]:
        found, wrong, left = list[tuple[Listener, Documented]](), list[str](), list(table)
        for listener in listeners:
            told = list[str]()
            for row in [row for row in left if row.fits(listener, ports=ports)]:
                problem = attempt(listener.host, listener.port, row.what)
                if problem is None:
                    left.remove(row)
                    found.append((listener, row))
                    break
                told.append(f"{row.what}? {problem}")
            else:
                why = "; ".join(told) or "it has no row, or its row has another place"
                wrong.append(f"{listener} is not what docs/production.md says: {why}")
        return found, wrong

    with ThreadPoolExecutor(at_once) as pool:
        parts = list(pool.map(of_process, by_process.values()))
    problems = [each for _, wrong in parts for each in wrong]
    assert not problems, "\n".join(problems)
    return [each for found, _ in parts for each in found]


def named_where(run: Callable[[str, object], Any]) -> list[tuple[Listener, Documented]]:
    """Which row of the table each listener of a pod is, by what it says to strangers who are in the pod; as above.

    Args:
        run: runs a script of Python there, with JSON as its input, and gives its output.
    """
    find, attempt = (Path(each.__file__).read_text("utf-8") for each in (listening_script, strangers_script))
    there = [
        Listener(each["address"], each["port"], tuple(each["processes"]), tuple(each["command"]))
        for each in run(find, None)
    ]
    return named(there, lambda *place: run(attempt, [place])[0], ports=True)
