"""How long a pass takes where a model's parts are on several devices.

Decoding waits for memory, not for arithmetic: a pass reads the weights that its tokens use, and the
keys and values of the text, at the bandwidth of the device that has them. This is the sloping part
of the roofline (Williams, Waterman and Patterson, 2009). Wherever the next part is on another
device, the results are handed over, which takes a while for itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

USUAL_BANDWIDTHS = {"cpu": 50e9, "integrated": 100e9, "gpu": 400e9, "other": 50e9}
"""The bytes per second that are assumed of a kind of device until a pass shows them: two channels
of DDR5, and a GPU with memory of its own that is eight times as fast."""
HAND_OVER, REMOTE_HAND_OVER = 50e-6, 1e-3
"""The seconds that a hand-over is taken to last between devices of a machine, and to workers."""
LEAST_BYTES = 2**28
"""A pass that reads less says nothing of a device's bandwidth: caches may hold it all."""
LARGEST_REST = 0.5
"""The share of a pass that may be predicted for the other devices, if it is to say how fast one is.
"""


@dataclass(frozen=True, slots=True)
class Reads:
    """What a pass reads on each device in bytes, the host first, and the number of hand-overs."""

    num_bytes: tuple[int, ...] = ()
    hand_overs: int = 0

    def __add__(self, other: "Reads") -> "Reads":
        both = zip(self.num_bytes, other.num_bytes, strict=True)
        return Reads(tuple(map(sum, both)), self.hand_overs + other.hand_overs)

    def __mul__(self, passes: int) -> "Reads":
        return Reads(tuple([passes * size for size in self.num_bytes]), passes * self.hand_overs)

    def seconds(self, bandwidths: Sequence[float], hand_over: float) -> float:
        """Return how long the pass takes with these bandwidths, in bytes per second."""
        reading = sum(self._reading(bandwidths))
        return reading + hand_over * self.hand_overs

    def shown_bandwidth(
        self, bandwidths: Sequence[float], hand_over: float, seconds: float
    ) -> tuple[int, float] | None:
        """Return the device that a pass of these seconds spent most on, and its bandwidth.

        None if the pass reads too little there, or if the rest is taken to last too long.
        """
        reading = self._reading(bandwidths)
        slowest = max(range(len(reading)), key=reading.__getitem__, default=0)
        if not reading or self.num_bytes[slowest] < LEAST_BYTES:
            return None
        rest = self.seconds(bandwidths, hand_over) - reading[slowest]
        if rest > LARGEST_REST * seconds:
            return None
        return slowest, self.num_bytes[slowest] / (seconds - rest)

    def _reading(self, bandwidths: Sequence[float]) -> list[float]:
        """Return the seconds of reading on each device."""
        return [
            size / bandwidth for size, bandwidth in zip(self.num_bytes, bandwidths, strict=True)
        ]
