"""Send odd requests to all endpoints of `specchat serve`, and check how it takes them.

    python scripts/check/fuzz_server.py [--count 500] [--seed 1] [--ends 5] [--images]

Wrong types at every field, huge and missing numbers, nesting, text that is not UTF-8, names of
control tokens, odd headers, methods and paths, bodies that are cut, slow, longer than they say, or
of up to 32 MiB. With `--images` a tiny model that takes some gets as many requests with damaged
images before. No reply may be a 5xx but 503, every error must have the shape of its API, no
internal error may be logged, and a normal request must be answered afterwards. Beside them a client
hears a stream, which may pause for a second longer than when it is alone, and memory must return.
Then servers are ended by SIGTERM while they read large requests and stream: within 5 s they must be
gone, and the stream must have ended or say why not. Exits with 1 otherwise.
"""

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.support.counts import positive
from scripts.support.server_fuzz import cases, fuzz, image_cases, send
from scripts.support.server_load import Listener, held, settled
from scripts.support.server_process import ServerProcess
from scripts.support.tiny_gguf import write_model, write_projector

MOST_PAUSE, MOST_END = 1.0, 5.0
WARM_UP, ALONE_SECONDS = 20, 10.0
"""Requests after which what is measured or loaded once is there; the stream's time alone."""
MOST_GAIN_MIB = 64.0
"""What allocators keep of large requests."""


def main() -> int:
    """Send all requests and print what was not taken well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=positive, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ends", type=int, default=5)
    parser.add_argument("--images", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="specchat-fuzz-") as folder:
        words = _model_for_images(Path(folder)) if arguments.images else ("--pair", "demo")
        with ServerProcess(Path(folder), words) as server:
            found = []
            if arguments.images:
                found = fuzz(server.address, arguments.seed, arguments.count, image_cases)
            found += _fuzzed(server, arguments.seed, arguments.count)
        for number in range(arguments.ends):
            with ServerProcess(Path(folder)) as server:
                found += _ended(server, random.Random(f"{arguments.seed} {number}"))
    print("\n".join(found))
    return int(bool(found))


def _model_for_images(folder: Path) -> Sequence[str]:
    """Write a tiny model that takes images; return what serves it."""
    target = write_model(folder / "seer.gguf", "llama", context_length=2048)
    projector = write_projector(folder / "mmproj.gguf", "mlp")
    return "--target", str(target), "--projector", str(projector)


def _fuzzed(server: ServerProcess, seed: int, count: int) -> list[str]:
    """Send requests beside a stream; return what was not taken well."""
    fuzz(server.address, seed, WARM_UP)
    server.chat(seed=seed, max_tokens=4)
    before, began = settled(server), time.monotonic()
    with Listener(server.address) as listener:
        time.sleep(ALONE_SECONDS)
        alone, listener.longest_pause = listener.longest_pause, 0.0
        found = fuzz(server.address, seed, count)
    seconds, pause = time.monotonic() - began, listener.longest_pause
    print(f"{count} requests in {seconds:.1f} s, {len(found)} faults")
    print(f"longest pause of a stream: {alone:.2f} s alone, {pause:.2f} s beside them")
    found += listener.faults
    if pause > alone + MOST_PAUSE:
        found.append(f"a stream paused for {pause:.1f} s")
    after = settled(server)
    gain = after.server_mib - before.server_mib
    print(f"server: {before.server_mib:.0f} MiB before, {after.server_mib:.0f} MiB after")
    if gain > MOST_GAIN_MIB:
        found.append(f"the server kept {gain:.0f} MiB")
    if not server.chat(max_tokens=4)["choices"]:
        found.append("no answer afterwards")
    if code := server.end():
        found.append(f"it ended with exit code {code}")
    return found + server.complaints()


def _ended(server: ServerProcess, draw: random.Random) -> list[str]:
    """End a server at any moment; return what it did not do well."""
    held(server)
    large = next(each for each in cases(draw.randrange(10**6), 10**4) if "large" in each.name)
    with Listener(server.address) as listener:
        sender = threading.Thread(target=send, args=(server.address, large))
        sender.start()
        time.sleep(draw.uniform(0, 3))
        began = time.monotonic()
        code = server.end(signal.SIGTERM)
        seconds = time.monotonic() - began
        sender.join()
    print(f"ended after {seconds:.1f} s, beside {large.name}")
    found = server.complaints()
    if seconds > MOST_END or code:
        found.append(f"ended by SIGTERM after {seconds:.1f} s with exit code {code}: {large.name}")
    if not listener.has_heard_why:
        found.append(f"a stream was cut without an error at the end: {large.name}")
    return found


if __name__ == "__main__":
    sys.exit(main())
