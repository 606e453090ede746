"""What this process has asked of object stores: each request is paid for, and so is what it carries."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

__all__ = ["REQUESTS", "Requests", "count_request", "no_requests", "requests"]

REQUESTS = ("put", "get", "list", "delete")
"""The methods. A part of a file that is put in parts is a put, as are its beginning and its end."""

Requests = npt.NDArray[np.int64]
"""int64[method, 2]: requests, and bytes of files that they sent or brought."""


def no_requests() -> Requests:
    """The count before the first request."""
    return np.zeros((len(REQUESTS), 2), np.int64)


_counts, _lock = no_requests(), threading.Lock()


def count_request(method: str, size: int = 0, requests: int = 1) -> None:
    """So many requests of a method have been made, with so many bytes in all."""
    with _lock:
        _counts[REQUESTS.index(method)] += requests, size


def requests() -> Requests:
    """What has been counted in this process; the library's own repetitions of a request have not been."""
    with _lock:
        return _counts.copy()
