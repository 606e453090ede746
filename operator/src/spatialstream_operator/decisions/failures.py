"""The description of a failure: a reason and a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Failure"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a pod has terminated, or does not start, or why a step cannot be done.

    Attributes:
        reason: a CamelCase word.
        message: a sentence, or the end of the driver's log.
        retry: ``slow`` if retrying soon is unlikely to help, because a setting or an image is wrong.
    """

    reason: str
    message: str
    retry: Literal["quick", "slow"] = "quick"
