"""How every share is written as a percentage: one way, on the screen, in commands and messages."""


def percent(share: float) -> str:
    """Return a share as "83 %"."""
    return f"{100 * share:.0f} %"
