"""What was asked and found, for people: the QT-tree and J as text and picture, and a run as one HTML page.

Nothing here is needed to answer a query. Every output is self-contained: it refers to no file, font or server.
"""

from spatialstream.report.page import Summary, write_page
from spatialstream.report.statistics import statistics_svg, statistics_text
from spatialstream.report.tree import LeafTable, tree_svg, tree_text

__all__ = ["LeafTable", "Summary", "statistics_svg", "statistics_text", "tree_svg", "tree_text", "write_page"]
