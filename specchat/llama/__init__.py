"""Everything that touches llama.cpp: models, contexts, rollback, the log, this machine's hardware.

The only package that imports llama_cpp and knows ctypes. It uses the low-level API alone: the
high-level `Llama` class redirects the process's output streams and copies whole rows of logits.
"""

import os

from specchat.planning.host_resources import num_processors

__all__ = ["let_threads_spin"]

SHORT_SPINS, USUAL_SPINS = "1000", "300000"
"""How often a thread looks for work before it sleeps, by a variable that GCC's OpenMP reads once,
when it is loaded; USUAL_SPINS are its own default, milliseconds.

With another program on one of two cores, a 1.1B model decodes 4 to 13 tokens/s instead of 43 with
the usual spins, 12 to 18 with short ones. Where processors stay idle, other programs run on those,
and the usual spins are 8 % faster (SmolLM2-135M, two threads on four processors).
"""

# Set before any module here imports llama_cpp. A user who chose how threads wait is left be.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", SHORT_SPINS)


def let_threads_spin(num_threads: int) -> None:
    """Restore the usual spins if this number of threads leaves processors idle.

    Has no effect once llama_cpp is imported.
    """
    is_ours = os.environ.get("GOMP_SPINCOUNT") == SHORT_SPINS
    if is_ours and num_threads < num_processors():
        os.environ["GOMP_SPINCOUNT"] = USUAL_SPINS
