"""Every exception the package raises on purpose, in one tree.

::

    SpatialStreamError
    ├── RecordError     one input record is unusable: it becomes a dead letter, the stream goes on
    ├── SettingError    a setting is unusable: refused at the start, exit status 2
    ├── StateError      the checkpoint on disk is not what this run can continue
    │   ├── Conflict    the routing state is another than the one that a change was made for
    │   ├── Lost        what a process had in memory of a stream's state is gone; it can be made anew
    │   └── Missing     a storage has no file of a name
    ├── Unavailable     a server could not be reached in time; later the same may succeed
    │   ├── Gone        what was asked for is not kept there any more; what is newer is
    │   ├── Suspended   the stream is at rest because somebody wants it to be; nobody answers until it goes on
    │   ├── Replaced    what was connected to is another one now; connect again
    │   └── NoStorage   where the state is kept is away, or denies; nothing goes on until that is mended
    ├── TooLarge        the answer would be larger than it may be: less has to be asked for
    ├── AllRejected     every object, or every query, of an input was rejected: exit status 4
    ├── ServerError     a server that was to be started here does not run
    └── RunError        a run, a stream or a job has failed for a reason that no setting explains

All of them survive pickling, because Spark carries exceptions between processes.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "AllRejected",
    "Conflict",
    "Gone",
    "Lost",
    "Missing",
    "NoStorage",
    "RecordError",
    "Replaced",
    "RunError",
    "ServerError",
    "SettingError",
    "SpatialStreamError",
    "StateError",
    "Suspended",
    "TooLarge",
    "Unavailable",
]


_MOST_TOLD = 8
"""Errors of one record that are told."""


class SpatialStreamError(Exception):
    """Base of every error that this package raises on purpose."""


class RecordError(SpatialStreamError):
    """A record that cannot be used: which field is wrong, and what would be right.

    Args:
        field: the field at fault, as it is written in the record (``"region.box"``).
        problem: one clause that says what is wrong and what would be right.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        """The reason as it stands in the dead letter: ``field: problem``."""
        return f"{self.field}: {self.problem}"

    @classmethod
    def of(cls, faults: Sequence[RecordError]) -> RecordError:
        """All that is wrong with a record, as one error of the first one's field.

        Args:
            faults: at least one; of many the first are told.
        """
        first, *others = faults
        problems = [first.problem, *map(str, others[: _MOST_TOLD - 1])]
        if len(faults) > _MOST_TOLD:
            problems.append(f"and {len(faults) - _MOST_TOLD} more")
        return cls(first.field, "; ".join(problems))


class SettingError(SpatialStreamError):
    """A setting that cannot be used: which one, and what would be right."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(setting, problem)
        self.setting = setting
        self.problem = problem

    def __str__(self) -> str:
        """One line for a person: ``setting: problem``."""
        return f"{self.setting}: {self.problem}"


class RunError(SpatialStreamError):
    """A run, a stream or a job has failed; the checkpoint is as the last whole turn left it."""


class AllRejected(SpatialStreamError):  # noqa: N818 (as Conflict)
    """Every object, or every query, of an input was rejected: what was meant is not what was asked.

    The message says of which kind, and the commonest reasons, a line each.
    """


class StateError(SpatialStreamError):
    """A checkpoint that is damaged, or that belongs to another run."""


class Conflict(StateError):  # noqa: N818 (it says what is, as StopIteration does)
    """A change of the routing state that is refused, because the state is another than the one it was made for."""


class Lost(StateError):  # noqa: N818 (as Conflict)
    """State that was in memory alone is gone: what was done since the last checkpoint has to be done again."""


class Missing(StateError):  # noqa: N818 (as Conflict)
    """A storage has no file of a name."""


class Unavailable(SpatialStreamError):  # noqa: N818 (as Conflict)
    """A server could not be reached in time. Whoever waits for it may try again; nothing is wrong with the request."""


class Gone(Unavailable):
    """What was asked for is not kept any more, or not there. Ask for what is newest."""


class Replaced(Unavailable):
    """What is of this name now is not what was connected to, but like it: connect again."""


class Suspended(Unavailable):
    """The stream is at rest because somebody wants it to be: nobody answers until it goes on."""


class NoStorage(Unavailable):
    """Where the state is kept cannot be reached, or does not let this process. Nothing is lost; it goes on then."""


class TooLarge(SpatialStreamError):  # noqa: N818 (as Conflict)
    """An answer would be larger than whoever asks takes. Less has to be asked for; the same again is refused again."""


class ServerError(SpatialStreamError):
    """A server that was to be started on this machine does not run.

    Args:
        problem: one clause that says what happened.
        output: the end of what the server printed.
    """

    def __init__(self, problem: str, output: str = "") -> None:
        super().__init__(problem, output)
        self.problem = problem
        self.output = output

    def __str__(self) -> str:
        """The problem, and below it what the server printed."""
        return f"{self.problem}\n{self.output}" if self.output else self.problem
