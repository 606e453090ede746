"""The hierarchy of exceptions that the package raises.

::

    SpatialStreamError
    ├── RecordError     an input record is invalid: it becomes a dead letter, and the stream continues
    ├── SettingError    a setting is invalid: the program refuses to start, with exit status 2
    │   └── NotServed   the stream answers no such queries: it serves subscriptions only
    ├── StateError      this run cannot continue from the checkpoint
    │   ├── Conflict    the routing state has changed since a change of it was computed
    │   ├── Lost        state that was only in memory is lost; it can be recomputed from the checkpoint
    │   └── Missing     a file does not exist in the storage
    ├── Unavailable     a server could not be reached in time; the request may succeed later
    │   ├── Gone        the requested state was replaced by a newer one; ask again
    │   ├── Suspended   the stream was suspended, and answers no queries until it is resumed
    │   ├── Replaced    another instance has replaced the peer; connect again
    │   └── NoStorage   the state storage is unreachable or denies access; work waits until that is fixed
    ├── TooLarge        the answer would exceed a limit: ask for less
    ├── AllRejected     every object, or every query, of an input was rejected: exit status 4
    ├── ServerError     a server that this process started does not run
    └── RunError        a run, a stream or a job failed for a reason that no setting explains

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
    "NotServed",
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
"""Maximum number of errors of a record in its reason."""


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
        """Combine all errors of a record into one, whose field is that of the first.

        Args:
            faults: at least one; the message contains the first eight.
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


class NotServed(SettingError):  # noqa: N818 (as Conflict)
    """The stream answers no such queries, whatever they are: it serves subscriptions only, and stores no objects."""


class RunError(SpatialStreamError):
    """A run, a stream or a job failed; the checkpoint is that of the last completed turn."""


class AllRejected(SpatialStreamError):  # noqa: N818 (as Conflict)
    """Every object, or every query, of an input was rejected, so the input is not what was intended.

    The message states the kind and the most common reasons, one per line.
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
    """The stream was suspended: it answers no queries until it is resumed."""


class NoStorage(Unavailable):
    """The state storage is unreachable or denies access. No state is lost; work resumes when that is fixed."""


class TooLarge(SpatialStreamError):  # noqa: N818 (as Conflict)
    """An answer would exceed the limit of the client or the server. Retrying is useless: ask for less."""


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
