"""Every exception the package raises on purpose, in one tree.

::

    SpatialStreamError
    ├── RecordError     one input record is unusable: it becomes a dead letter, the stream goes on
    ├── SettingError    a setting is unusable: refused at the start, exit status 2
    ├── StateError      the checkpoint on disk is not what this run can continue
    └── RunError        the streaming query failed for a reason that no setting explains

All of them survive pickling, because Spark carries exceptions between processes.
"""

from __future__ import annotations

__all__ = ["RecordError", "RunError", "SettingError", "SpatialStreamError", "StateError"]


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
    """The streaming query failed; the checkpoint is as the last whole epoch left it."""


class StateError(SpatialStreamError):
    """A checkpoint that is damaged, or that belongs to another run."""
