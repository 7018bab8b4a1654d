"""The Sphinx configuration of the handbook, for `make docs` (decisions/0020-handbook.md).

The source is the whole checkout, so that pages are what they are in the repository and their links to each
other, and to files beside them, are followed as they stand.
"""

project = "lorogo"
author = "lorogo"
root_doc = "docs/index"
extensions = ["myst_parser"]
include_patterns = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "bench/peers/README.md",
    "docs/**.md",
    "examples/**.md",
    "web/README.md",
]
exclude_patterns = [".*", "build", "dist", "lorogo_*", "tests", "**/node_modules", "**/.*"]

nitpicky = True  # a reference that leads nowhere is a warning, and `make docs` takes warnings for errors
myst_heading_anchors = 4  # as GitHub makes them
myst_links_external_new_tab = False
highlight_language = "none"  # of blocks without a language: drawings and commands

html_theme = "furo"  # brings its styles and scripts along, and no fonts
html_title = "lorogo"
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"footer_icons": [], "top_of_page_buttons": []}
html_extra_path = ["site"]  # index.html: the way from / to the handbook
