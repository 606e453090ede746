"""Reports: the QT-tree and J as text and pictures, a run as an HTML page, and maps for notebooks.

Nothing here is needed to answer queries. Every output is self-contained: it refers to no file, font or server.

The pictures are written as SVG by hand because matplotlib would save some 200 lines (axes, legends, bars) of the 1,200,
would be 80 MiB of packages at run time, takes five times as long and more, and has neither tooltips of leaves nor
colours that follow the reader's light or dark theme.
"""

from spatialstream.report.answer import answer_html
from spatialstream.report.leaf_map import LeafTable
from spatialstream.report.map import Map
from spatialstream.report.page import Summary, write_page
from spatialstream.report.statistics import statistics_svg, statistics_text
from spatialstream.report.tree import tree_svg, tree_text

__all__ = [
    "LeafTable",
    "Map",
    "Summary",
    "answer_html",
    "statistics_svg",
    "statistics_text",
    "tree_svg",
    "tree_text",
    "write_page",
]
