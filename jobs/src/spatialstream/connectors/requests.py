"""Counts this process's requests to object stores: each request costs money, and so do the bytes transferred."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

__all__ = ["REQUESTS", "Requests", "count_request", "no_requests", "requests"]

REQUESTS = ("put", "get", "list", "delete")
"""The methods. A part of a multipart upload counts as a put, as do its start and its end."""

Requests = npt.NDArray[np.int64]
"""int64[method, 2]: requests, and bytes of files sent or received."""


def no_requests() -> Requests:
    """The counts before the first request."""
    return np.zeros((len(REQUESTS), 2), np.int64)


_counts, _lock = no_requests(), threading.Lock()


def count_request(method: str, size: int = 0, requests: int = 1) -> None:
    """Count requests of a method, and their bytes in all."""
    with _lock:
        _counts[REQUESTS.index(method)] += requests, size


def requests() -> Requests:
    """The counts of this process; retries within the library are not counted."""
    with _lock:
        return _counts.copy()
