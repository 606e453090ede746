"""Turns Spark's message about a failed task into the original error."""

from __future__ import annotations

import re
import sys

from spatialstream.model.errors import RunError, SettingError, SpatialStreamError, StateError

__all__ = ["explained"]

_OURS = re.compile(r"spatialstream\.model\.errors\.(\w+): (.*)")
_ANOTHER_PYTHON = re.compile(r"No module named 'spatialstream|PYTHON_VERSION_MISMATCH")
_FULL = re.compile(r"\[Errno (28|122)\]|No space left on device")
_DIED = re.compile(r"exited unexpectedly|Connection (reset|refused)|OutOfMemory")


def explained(text: str) -> SpatialStreamError:
    """The error that a message of Spark reports, in a few words.

    Says that a retry helps where it may: if a process has died, or a disk was full.

    Args:
        text: the whole message. What the Python process has raised precedes the first SQLSTATE, at the end of its
            traceback.
    """
    lines = [line.strip() for line in text.split("SQLSTATE")[0].splitlines() if line.strip()]
    cause = lines[-1] if lines else "Spark reports no cause"
    if _ANOTHER_PYTHON.search(text):
        problem = (
            f"Spark's Python processes do not run this Python; set it to {sys.executable} before the session is made"
        )
        return SettingError("PYSPARK_PYTHON", f"{problem}, or install spatialstream where they run")
    if ours := _OURS.fullmatch(cause):
        kind, said = ours.groups()
        if kind == "SettingError":
            setting, _, problem = said.partition(": ")
            return SettingError(setting, problem)
        return StateError(said) if kind == "StateError" else RunError(said)
    if _FULL.search(cause):
        return RunError(f"{cause}; free some space, and run the same again: it continues from here")
    if _DIED.search(text):
        return RunError(f"{cause}; a process has died; run the same again: it continues from here")
    return RunError(cause)
