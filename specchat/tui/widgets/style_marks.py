"""Marks in the style metadata of rendered text, for selection and mouse clicks."""

MARGIN = "margin"
"""Marks the space around code, which is not copied."""
COPY = "copy"
"""The label above a code block that copies it, and the mark of that label."""
