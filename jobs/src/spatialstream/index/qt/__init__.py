"""The QT-tree (SSTD, section 4.1.2): its nodes and routing, its construction, and its adjustment to the load."""

from spatialstream.index.adjustment import Implementation
from spatialstream.index.qt.adjuster import adjust_tree
from spatialstream.index.qt.construction import build_tree
from spatialstream.index.qt.tree import QTTree

__all__ = ["IMPLEMENTATION"]

IMPLEMENTATION = Implementation(QTTree, build_tree, {"FG": adjust_tree})
