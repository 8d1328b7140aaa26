"""Everything that touches llama.cpp: models, contexts, rollback, the log, this machine's hardware.

The only package that imports llama_cpp and knows ctypes. It uses the low-level API alone: the
high-level `Llama` class redirects the process's output streams and copies whole rows of logits.
"""

import os

# llama.cpp's threads spin between operations, by default for milliseconds. With another program on
# one of two cores, a 1.1B model then decodes 4 to 13 tokens/s instead of 43; with short spins 12 to
# 18, and still 43 on an idle machine. GCC's OpenMP reads the variable once, when it is loaded, so
# it is set before any module here imports llama_cpp. A user who chose how threads wait is left be.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
