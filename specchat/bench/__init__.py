"""Measuring the speedup on the user's own machine, and choosing settings by it."""
