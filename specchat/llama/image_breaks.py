"""The states between the rows of an image of Pixtral's kind, which llama.cpp may leave undefined.

llama.cpp multiplies memory that nothing has written yet by zero and adds the state of [IMG_BREAK]
to it. So the sum is that state, unless the memory happened to hold NaN or infinity.
"""

import numpy as np
from numpy.typing import NDArray

from specchat.gguf.header import Header
from specchat.gguf.reader import read_part
from specchat.llama.hidden_states import HiddenStates

NAME = "v.token_embd.img_break"
F32 = 0


def mend_breaks(states: HiddenStates, header: Header) -> None:
    """Write the states that belong between the rows of an image where they are not numbers.

    Other states stay as they are, numbers or not.
    """
    is_lost = ~np.isfinite(states).all(axis=1)
    if not is_lost.any() or (wanted := _break_of(header)) is None:
        return
    places = (is_lost | (states == wanted).all(axis=1)).nonzero()[0]
    length = int(places[0]) + 1
    is_after_rows = length > 1 and not (len(states) + 1) % length  # after each but the last
    if is_after_rows and np.array_equal(places, np.arange(length - 1, len(states), length)):
        states[places] = wanted


def _break_of(header: Header) -> NDArray[np.float32] | None:
    """Return the state that a projector's file has for it, None if there is none to read."""
    tensor = header.tensors.get(NAME)
    if tensor is None or tensor.stored != F32:
        return None
    begin = read_part(header.path).data_position + tensor.offset
    return np.fromfile(header.path, np.float32, tensor.num_values, offset=begin)
