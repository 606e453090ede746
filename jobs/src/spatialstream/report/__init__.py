"""What was asked and found, for people: the QT-tree as text and picture, and a run as one HTML page.

Nothing here is needed to answer a query. Every output is self-contained: it refers to no file, font or server.
"""

from spatialstream.report.page import Summary, write_page
from spatialstream.report.tree import LeafTable, tree_svg, tree_text

__all__ = ["LeafTable", "Summary", "tree_svg", "tree_text", "write_page"]
