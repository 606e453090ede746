"""Arrays in kernels: their types, integers read from them, and buffers that grow."""

from __future__ import annotations

from typing import Any

import numpy as np

from spatialstream.model.arrays import Array, Bytes, Codes, Flags, Floats, Ints, Words
from spatialstream.model.kernels import kernel

__all__ = ["Array", "Bytes", "Codes", "Flags", "Floats", "Ints", "Words", "grown", "wide"]


@kernel
def wide(number: Any) -> int:
    """The number, of any integer type up to 32 bits or signed 64, as a signed 64-bit integer.

    Numba gives a variable one type, so what is read from narrow arrays is widened first.
    """
    result: int = number + 0
    return result


@kernel
def grown(values: Array, used: Any, length: Any) -> Array:
    """An array of another length along its first axis that begins with ``used`` elements of ``values``.

    The rest is undefined.
    """
    result = np.empty((length, *values.shape[1:]), values.dtype)
    result[:used] = values[:used]
    return result
