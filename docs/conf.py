# How Sphinx builds the documentation. It fetches nothing: no inventories of other projects, no fonts, no scripts.
from importlib.metadata import version as installed_version

project = "spatialstream"
author = "the spatialstream authors"
copyright = "2026, the spatialstream authors"
version = release = installed_version("spatialstream")

extensions = [
    "myst_parser",  # pages in Markdown
    "sphinx.ext.autodoc",  # the Python API from its docstrings
    "sphinx.ext.napoleon",  # which are in Google's format
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3  # headings down to this level can be linked to

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
napoleon_numpy_docstring = False

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_title = "spatialstream"
html_copy_source = False
html_show_sphinx = False
