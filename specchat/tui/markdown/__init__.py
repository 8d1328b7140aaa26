"""Markdown and formulas, drawn while they are written."""
