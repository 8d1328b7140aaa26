"""Marks of rendered text, in the meta data of its style, that the mouse finds there."""

MARGIN = "margin"
"""A space beside code, which is not copied with it."""
COPY = "copy"
"""The word above code that copies it, and its mark."""
