"""The kinds of global index. A kind is a package in this folder and a row of :data:`KINDS`.

To add a kind:

1. Write a package ``spatialstream/index/NAME/`` with a subclass of
   :class:`~spatialstream.index.base.GlobalIndex` and a function that builds one from a sample
   (:data:`~spatialstream.index.adjustment.Builder`). Its ``__init__.py`` has one name, ``IMPLEMENTATION``, an
   :class:`~spatialstream.index.adjustment.Implementation`.
2. Add a row here: name, package, and the strategies by which its load is balanced. PM and FM move leaves between slots
   and need nothing of an index. The others need one of its ``adjusters``, but ``rebuild`` builds an index anew from the
   stream's sample: give it if that adapts the index to the sample.
3. Add a strategy of random indexes of the kind to ``INDEXES`` in ``tests/unit/index/test_contract.py``, and the name to
   the enum of ``spec.index.kind`` in the CRD; a test compares the two.

A kind that has ``rebuild`` is one that the planner chooses from (:mod:`spatialstream.balance.planner`).

Everything else - files, commands, the operator, pictures - uses this table. It imports nothing heavy: a package is
imported when its index is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from spatialstream.model.errors import SettingError

if TYPE_CHECKING:
    from spatialstream.index.adjustment import Implementation

__all__ = ["AUTO", "CHOICES", "DEFAULT", "KINDS", "STRATEGIES", "Kind", "kind_named", "wanted_kind"]

STRATEGIES = ("PM", "FM", "FG", "SM", "SH", "CM", "rebuild")
"""The strategies that a kind may have, in the order of trying them: those of SSTD (PM, FM, FG), those of Tornado (split
and merge, shift), that of PS2Stream (cell migration), and a rebuild of the index."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of global index.

    Attributes:
        name: its name in settings and files.
        package: the package that implements it.
        strategies: strategies that balance its load, in the order of :data:`STRATEGIES`.
        summary: what it is, in a few words, for help texts.
    """

    name: str
    package: str
    strategies: tuple[str, ...]
    summary: str

    @property
    def implementation(self) -> Implementation:
        """What its package provides; the first use imports the package."""
        found: Implementation = import_module(self.package).IMPLEMENTATION
        return found

    @property
    def adapts(self) -> bool:
        """Whether its indexes adapt to a sample, so that a rebuild, or the planner, makes one of this kind."""
        return "rebuild" in self.strategies


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "qt-tree",
            "spatialstream.index.qt",
            ("PM", "FM", "FG", "rebuild"),
            "the QT-tree of the paper: cells as small as the load requires, split by space or by text",
        ),
        Kind(
            "a-grid",
            "spatialstream.index.a_grid",
            ("PM", "FM", "SM", "SH", "rebuild"),
            "the Augmented Grid of Tornado: rectangles of cells of a fine grid, smaller where there is more load",
        ),
        Kind(
            "kd-t",
            "spatialstream.index.kd_t",
            ("PM", "FM", "CM", "rebuild"),
            "the kd^t-tree of PS2Stream: cells of a kd-tree, of which some are divided by words",
        ),
        Kind("grid", "spatialstream.index.grid", ("PM", "FM"), "a uniform grid of equal cells, which never change"),
    )
}
"""Name -> kind."""

DEFAULT = "qt-tree"
"""The kind of a new stream, unless another one is set."""


AUTO = "auto"
"""In place of a kind: the planner chooses one (:mod:`spatialstream.balance.planner`)."""

CHOICES = (*KINDS, AUTO)
"""What a setting of the kind of index may be."""


def kind_named(name: str, setting: str = "index") -> Kind:
    """The kind of a name.

    Args:
        name: the name.
        setting: the setting that has it, for the error.

    Raises:
        SettingError: there is no such kind; the message lists those that there are.
    """
    if name not in KINDS:
        raise SettingError(setting, f"{name!r} is not a kind of index: {', '.join(KINDS)}")
    return KINDS[name]


def wanted_kind(name: str, setting: str = "index") -> str:
    """The name of a kind, or :data:`AUTO`.

    Args:
        name: the name.
        setting: the setting that has it, for the error.

    Raises:
        SettingError: it is neither; the message lists what there is.
    """
    if name not in CHOICES:
        raise SettingError(setting, f"{name!r} is not a kind of index: {', '.join(KINDS)}, or {AUTO}")
    return name
