"""Drafts made from a target: how they are made, their predicted speedup, where they are kept."""
