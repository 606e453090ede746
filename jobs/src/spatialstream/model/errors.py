"""The hierarchy of exceptions that the package raises.

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
    """Base class of all exceptions that this package raises."""


class RecordError(SpatialStreamError):
    """An input record is invalid.

    Args:
        field: the invalid field, as written in the record (``"region.box"``).
        problem: one clause that says what is wrong and what would be valid.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        """The ``reason`` of the dead letter: ``field: problem``."""
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
    """A setting is invalid: which one, what is wrong and what would be valid."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(setting, problem)
        self.setting = setting
        self.problem = problem

    def __str__(self) -> str:
        """One line for users: ``setting: problem``."""
        return f"{self.setting}: {self.problem}"


class RunError(SpatialStreamError):
    """A run, a stream or a job failed; the checkpoint is that of the last completed turn."""


class AllRejected(SpatialStreamError):  # noqa: N818 (as Conflict)
    """Every object, or every query, of an input was rejected: what was meant is not what was asked.

    The message says of which kind, and the commonest reasons, a line each.
    """


class StateError(SpatialStreamError):
    """A checkpoint is damaged or belongs to another run."""


class Conflict(StateError):  # noqa: N818 (named for the condition, like StopIteration)
    """A change of the routing state is refused because the state changed since the change was computed."""


class Lost(StateError):  # noqa: N818 (as Conflict)
    """State that was only in memory is lost: the work since the last checkpoint must be repeated."""


class Missing(StateError):  # noqa: N818 (as Conflict)
    """A file does not exist in the storage."""


class Unavailable(SpatialStreamError):  # noqa: N818 (as Conflict)
    """A server could not be reached in time. The request is valid and may be retried."""


class Gone(Unavailable):
    """The requested state is no longer available here, or not available at all. Ask again, for the newest state."""


class Replaced(Unavailable):
    """The peer was replaced by another of the same name and kind: reconnect."""


class Suspended(Unavailable):
    """The stream is at rest because somebody wants it to be: nobody answers until it goes on."""


class NoStorage(Unavailable):
    """The state storage is unreachable or denies access. No state is lost; work resumes when that is fixed."""


class TooLarge(SpatialStreamError):  # noqa: N818 (as Conflict)
    """An answer would be larger than whoever asks takes. Less has to be asked for; the same again is refused again."""


class ServerError(SpatialStreamError):
    """A server started on this machine does not run.

    Args:
        problem: one clause that says what happened.
        output: the last lines that the server printed.
    """

    def __init__(self, problem: str, output: str = "") -> None:
        super().__init__(problem, output)
        self.problem = problem
        self.output = output

    def __str__(self) -> str:
        """The problem, followed by the server's output on the next lines."""
        return f"{self.problem}\n{self.output}" if self.output else self.problem
