"""Arrays in kernels: their types, widening of integers, and growing buffers."""

from __future__ import annotations

from typing import Any

import numpy as np

from spatialstream.model.arrays import Array, Bytes, Codes, Flags, Floats, Ints, Words
from spatialstream.model.kernels import kernel

__all__ = ["Array", "Bytes", "Codes", "Flags", "Floats", "Ints", "Words", "grown", "wide"]


@kernel
def wide(number: Any) -> int:
    """Convert an integer of any type up to 32 bits or signed 64 bits to a signed 64-bit integer.

    Numba gives a variable one type, so values read from narrow arrays are widened first.
    """
    result: int = number + 0
    return result


@kernel
def grown(values: Array, used: Any, length: Any) -> Array:
    """Copy the first ``used`` elements of ``values`` into a new array with another length of its first axis.

    The remaining elements are undefined.
    """
    result = np.empty((length, *values.shape[1:]), values.dtype)
    result[:used] = values[:used]
    return result
