"""Numbers on the command lines of scripts."""

import argparse


def positive(text: str) -> int:
    """Return a number of rounds, at least 1: without one there is nothing to take a median of."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"at least 1 is needed, not {number}")
    return number
