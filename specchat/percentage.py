"""How every share is written as a percentage: one way, on the screen, in commands and messages."""


def percent(share: float) -> str:
    """Return a share as "83 %"; only nothing is 0 %, and only the whole 100 %."""
    rounded = round(100 * share)
    if 0 < share < 1:
        rounded = min(max(rounded, 1), 99)
    return f"{rounded} %"
