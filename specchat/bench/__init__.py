"""Measuring on the user's own machine what speculation brings, and choosing settings by it."""
