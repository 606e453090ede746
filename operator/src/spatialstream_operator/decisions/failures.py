"""What is wrong with something, in a word and in a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Failure"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a pod has ended, or does not start; why a step cannot be done.

    Attributes:
        reason: CamelCase.
        message: a sentence, or the driver's last words.
        retry: ``slow`` if trying again soon is unlikely to help, because a setting or an image is wrong.
    """

    reason: str
    message: str
    retry: Literal["quick", "slow"] = "quick"
