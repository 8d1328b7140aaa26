"""The host's memory for texts that are not to be read again, and how many states it holds."""

AUTO_SHARE, MOST_AUTO_BYTES = 0.25, 8 * 2**30
"""The share of the host's free memory that copies may take, and its limit."""
PRESENT_SHARE = 0.5
"""The share of it that the states of the present text may take."""
LEAST_STATES, MOST_STATES = 4, 32
"""The least and the most states of a text that are kept, however large or small one is."""


def room_for_copies(free: int) -> int:
    """Return the memory that copies may take, in bytes, where `free` are free."""
    return min(int(AUTO_SHARE * free), MOST_AUTO_BYTES)


def num_states(room: int, size: int) -> int:
    """Return how many states of a text are kept where they have this room, in bytes."""
    return min(MOST_STATES, max(LEAST_STATES, room // max(1, size)))
