"""The HTML report: its data, sections, charts, and style."""
