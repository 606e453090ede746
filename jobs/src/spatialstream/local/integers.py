"""Integers in kernels: numba gives a variable one type, so what is read from narrow arrays is widened first."""

from __future__ import annotations

from typing import Any

from spatialstream.model.kernels import kernel

__all__ = ["wide"]


@kernel
def wide(number: Any) -> int:
    """The number, of any integer type up to 32 bits or signed 64, as a signed 64-bit integer."""
    result: int = number + 0
    return result
