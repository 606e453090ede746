"""All compiled kernels, made ready before the first epoch."""

from __future__ import annotations

from collections.abc import Callable

from spatialstream.index import version
from spatialstream.local import ckq, crq, ctq, registry, segments, skyband
from spatialstream.model import tokens

__all__ = ["prepare"]

_MODULES: tuple[Callable[[], None], ...] = (
    tokens.prepare,
    version.prepare,
    registry.prepare,
    segments.prepare,
    crq.prepare,
    ckq.prepare,
    skyband.prepare,
    ctq.prepare,
)


def prepare(report: Callable[[int, int], None] | None = None) -> None:
    """Compile every kernel, or load it from the cache on disk.

    Args:
        report: called as (done, total) after each module, for a progress display.
    """
    for done, prepare_module in enumerate(_MODULES, 1):
        prepare_module()
        if report is not None:
            report(done, len(_MODULES))
