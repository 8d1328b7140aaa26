"""Draft models made from a target: their predicted speedup, how they are made, where kept."""
