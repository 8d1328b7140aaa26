"""Measuring the speedup on the user's own machine, and comparing settings by it."""
