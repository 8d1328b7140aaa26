"""Drafts made out of a target: what one brings, which layers to leave out, where it is kept."""
