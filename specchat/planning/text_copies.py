"""The host's memory for texts that are not to be read again, and how many states it holds."""

MIB = 2**20
AUTO_SHARE, MOST_AUTO_BYTES = 0.25, 8 * 2**30
"""The share of the host's free memory that copies may take, and its limit."""
PRESENT_SHARE = 0.5
"""The share of it that the states of the present text may take."""
LEAST_STATES, MOST_STATES = 4, 32
"""The least and the most states of a text that are kept, however large or small one is."""
LEAST_STEP, STEP_PER_MIB = 256, 10
"""Tokens between states, and what each MiB of one adds on a GPU. Copying a MiB at 2 GB/s takes 7 %
of the time of reading ten tokens at 1500 tokens/s."""


def room_for_copies(cache_ram: int | None, free: int) -> int:
    """Return the memory that copies may take, in bytes, of those that are `free`.

    `cache_ram` is the limit in MiB, None to follow from the free memory.
    """
    if cache_ram is not None:
        return MIB * cache_ram
    return min(int(AUTO_SHARE * free), MOST_AUTO_BYTES)


def room_for_states(room: int, num_saving: int) -> int:
    """Return what each model that saves states may take of the room for copies, in bytes."""
    return int(PRESENT_SHARE * room) // max(1, num_saving)


def step_between_states(size: int, *, is_on_gpu: bool) -> int:
    """Return how many tokens apart states of this size are saved while a prompt is read.

    A GPU reads so fast that the copies would take a good part of the time.
    """
    return LEAST_STEP + (STEP_PER_MIB * size // MIB if is_on_gpu else 0)


def num_states(room: int, size: int) -> int:
    """Return how many states of a text are kept where they have this room, in bytes."""
    return min(MOST_STATES, max(LEAST_STATES, room // max(1, size)))
