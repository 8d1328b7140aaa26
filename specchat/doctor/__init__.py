"""Checks of this machine, each with the commands that fix what it finds."""
