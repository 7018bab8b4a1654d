project = "lorogo"
root_doc = "docs/index"
extensions = ["myst_parser"]
include_patterns = ["docs/**", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/peers/README.md", "web/README.md", "examples/**"]
exclude_patterns = [".*", "build", "dist", "**/node_modules", "lorogo_*", "tests"]
html_theme = "furo"
myst_heading_anchors = 6
