"""Measure specchat on a GPU, beside llama-server on the same build of llama.cpp.

One command writes a pair of random weights (about 8B and 0.7B in Q4_0), decodes without drafts,
with `auto`, with fixed draft lengths and with llama-server, in turns, at temperatures 0 and 1, and
writes a table. It stops after --minutes, not counting builds that are made on the first call.

The limit is the speed at which the weights could be read: a step reads the target once and the
draft model once per drafted token, at the memory's bandwidth. NVIDIA's driver knows that of its
GPUs, and that of a software renderer is measured; name others with --bandwidth.

With --memory it measures instead where the parts of a mixture of experts are best on a GPU with
this much memory, for which it writes one that is too large: whole layers on the CPU, or experts.

    python scripts/measure/measure_gpu.py                            # a GPU with 12 GB or more
    python scripts/measure/measure_gpu.py --memory 8                 # a mixture of 16 GB
    python scripts/measure/measure_gpu.py --backend vulkan --tiny    # tries it anywhere
"""

import argparse
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_path

from scripts.setup_env.backends import MAKERS, find_backend
from scripts.setup_env.devices import device_environment, provide_build
from scripts.support.counts import positive
from scripts.support.llama_server import MeasuredServer, measured_server
from scripts.support.llama_tools import find_tool, installed_version
from scripts.support.machine_line import machine_line
from scripts.support.made_pair import Shape, make_pair, prompt_tokens
from scripts.support.placed_mixture import shape_for, ways_to_place, write_mixture
from scripts.support.placed_mixture import table as placement_table
from scripts.support.reading_limit import Answer, Limit, limit_of, table
from specchat import Engine
from specchat.cli.placement_tuning import placed, time_placement
from specchat.llama.child_process import ask_for_build
from specchat.planning.device import Device, find_machine, gpus_of
from specchat.planning.forecast import devices_of
from specchat.planning.memory import HOST

ROOT = Path(__file__).resolve().parents[2]
BUILD = "MEASURED_BUILD"
"""Set to the folder of llama.cpp's build once it is the one in use."""
BIG = Shape(
    layers=36,
    width=4096,
    heads=32,
    kv_heads=8,
    feed_forward=14336,
    vocabulary=32000,
    draft_layers=2,
)
TINY = Shape(
    layers=4, width=256, heads=4, kv_heads=2, feed_forward=512, vocabulary=2048, draft_layers=1
)
FIXED_LENGTHS = (2, 4, 8)
SAMPLING: dict[str, Any] = {"top_k": 40, "top_p": 1.0, "min_p": 0.0}
MEMORY_CLOCK, BUS_WIDTH = 36, 37
"""Attributes of a device in CUDA's driver: kilohertz and bits."""
COPIED_BYTES = 2**28


Contestant = Callable[[float, int], Answer]
"""Decodes at a temperature with a seed."""


def use_build(name: str) -> None:
    """Start this script again with llama.cpp built for a backend, unless that is in use."""
    if os.environ.get(BUILD):
        return
    name = name or find_backend().name.lower()
    if name == "cpu":
        sys.exit("found no GPU with a toolkit or Vulkan driver: name a backend with --backend")
    folder = provide_build(name)
    environment = device_environment(name, folder, os.environ) | {BUILD: str(folder)}
    libraries = filter(None, [str(folder / "llama_cpp" / "lib"), os.environ.get("LD_LIBRARY_PATH")])
    environment["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)  # llama-server takes them, too
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)  # noqa: S606  # this script


def find_gpu() -> Device:
    """Return the GPU that llama.cpp uses."""
    answer = ask_for_build()
    found = gpus_of(answer.report.devices) if answer.report else []
    if not found:
        sys.exit("llama.cpp finds no GPU: `specchat doctor` says what to do")
    return found[0]


def server_tool(tools: Path | None) -> Path:
    """Return llama-server, built from the source of llama-cpp-python if no folder has it.

    It is built for the CPU, which is quick, and run with the libraries of the build in use.
    """
    if tools:
        return find_tool(tools, "llama-server")
    script = ROOT / "scripts" / "lab" / "build_llama_tools.py"
    folder = user_cache_path("specchat") / "llama-tools" / installed_version()
    command = [sys.executable, str(script), "--tools", "llama-server", "--out", str(folder)]
    own = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    own["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), own["PATH"]])  # cmake's
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=own)
    return Path(done.stdout.strip())


def bandwidth_of(gpu: Device) -> float:
    """Return the bytes per second of a device's memory; 0 if unknown."""
    if gpu.description.startswith("llvmpipe"):
        return _host_bandwidth()
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0.0
    cuda.cuInit(0)
    values = []
    for attribute in (MEMORY_CLOCK, BUS_WIDTH):
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0)
        values.append(value.value)
    clock, width = values
    return 2e3 * clock * width / 8  # two transfers per clock


def _host_bandwidth() -> float:
    """Return the bytes per second that are read and written when an array is copied; the best."""
    source = np.ones(COPIED_BYTES // 8)
    copy = np.empty_like(source)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        np.copyto(copy, source)
        seconds.append(time.perf_counter() - began)
    return 2 * COPIED_BYTES / min(seconds)


def specchat(
    engine: Engine, prompt: Sequence[int], num_tokens: int, drafter: str, length: int | str
) -> Contestant:
    """Return a contestant that decodes with specchat."""

    def answer(temperature: float, seed: int) -> Answer:
        engine.forget()
        drafting: dict[str, Any] = {"drafter": drafter, "draft_length": length}
        sampling = SAMPLING | {"temperature": temperature, "seed": seed, "ignore_end": True}
        for _ in engine.generate(prompt, max_tokens=num_tokens, **drafting, **sampling):
            pass
        stats = engine.stats
        rate, tokens = stats.tokens_per_second, stats.generated_tokens
        return Answer(rate, tokens, stats.steps, stats.drafted)

    return answer


def llama_server(server: MeasuredServer, prompt: Sequence[int], num_tokens: int) -> Contestant:
    """Return a contestant that decodes with a running llama-server."""

    def answer(temperature: float, seed: int) -> Answer:
        sampling = SAMPLING | {"temperature": temperature, "seed": seed}
        found = server.timings(prompt, num_tokens, **sampling)
        drafted, accepted = (int(found.get(key, 0)) for key in ("draft_n", "draft_n_accepted"))
        rate, steps = found["predicted_per_second"], num_tokens - accepted
        return Answer(rate, num_tokens, steps, drafted)

    return answer


def contestants(options: argparse.Namespace, stack: ExitStack) -> dict[str, Contestant]:
    """Load the pair into an engine and into two servers."""
    target, draft = options.folder / "target.gguf", options.folder / "draft.gguf"
    prompt, num_tokens = prompt_tokens(24, options.shape.vocabulary, 7), options.tokens
    engine = stack.enter_context(Engine.load(target, draft, process=True, ctx=2048))
    engine.prepare()
    say(f"loaded: {engine.facts.plan}")
    found = {"plain": specchat(engine, prompt, num_tokens, "none", "auto")}
    found["auto"] = specchat(engine, prompt, num_tokens, "auto", "auto")
    for length in FIXED_LENGTHS:
        found[f"draft length {length}"] = specchat(engine, prompt, num_tokens, "model", length)
    if options.without_server:
        return found
    tool = server_tool(options.tools)
    drafting = ["--spec-type", "draft-simple", "-md", str(draft), "-ngld", "99"]
    for name, more in {"llama-server": [], "llama-server, draft model": drafting}.items():
        loading = ("-ngl", "99", *more)
        server = measured_server(tool, target, os.cpu_count() or 1, loading)
        found[name] = llama_server(stack.enter_context(server), prompt, num_tokens)
    return found


def measure(
    options: argparse.Namespace, running: dict[str, Contestant], deadline: float
) -> dict[float, dict[str, list[Answer]]]:
    """Decode in turns, a round at a time; return the answers by temperature."""
    answers: dict[float, dict[str, list[Answer]]] = {
        temperature: {name: [] for name in running} for temperature in (0.0, 1.0)
    }
    for number in range(options.rounds + 1):
        for temperature, done in answers.items():
            for name in sorted(running, reverse=bool(number % 2)):
                answer = running[name](temperature, number)
                if number:  # the first round warms up
                    done[name].append(answer)
        say(f"round {number} of {options.rounds}")
        if number and time.monotonic() > deadline:
            break
    return answers


def measure_placements(options: argparse.Namespace, gpu: Device) -> str:
    """Write a mixture of experts, time each way to place it, and return the page."""
    memory = int(2**30 * options.memory)
    path = write_mixture(options.folder, shape_for(memory))
    say(f"wrote {path}")
    gpu = replace(gpu, measured_bandwidth=options.bandwidth)
    host = devices_of(find_machine())[HOST]
    loading, predicted = ways_to_place(path, gpu, host, memory)
    timed = []
    for plan in predicted:
        timed.append(time_placement(placed(loading, plan), plan))
        say(timed[-1].placement)
    size, rates = path.stat().st_size / 1e9, [each.bandwidth / 1e9 for each in (gpu, host)]
    lines = [
        f"{gpu.label} ({gpu.name}), as if it had {options.memory:g} GiB; {machine_line()}",
        f"A mixture of experts with random weights, {size:.3g} GB; context {loading.ctx}.",
        f"Predicted from {rates[0]:.0f} GB/s on the GPU and {rates[1]:.0f} GB/s here.",
        "",
        *placement_table(predicted, timed),
    ]
    return "\n".join(lines) + "\n"


def measure_pair(options: argparse.Namespace, gpu: Device, deadline: float) -> str:
    """Write a pair, decode with it in every way until the deadline, and return the page."""
    pair = make_pair(options.folder, options.shape, agreement=0.7, tokens=128, gpu_layers=99)
    with ExitStack() as stack:
        running = contestants(options, stack)
        answers = measure(options, running, deadline)
    return report(gpu, limit_of(options.folder, options.bandwidth), answers, pair.agreement)


def report(
    gpu: Device, limit: Limit, answers: dict[float, dict[str, list[Answer]]], agreement: float
) -> str:
    """Return the page: what was measured, and a table for each temperature."""
    num_rounds = len(answers[0.0]["plain"])
    target, draft, bandwidth = (
        f"{size / 1e9:.3g} GB" for size in (limit.target, limit.draft, limit.bandwidth)
    )
    lines = [
        f"{gpu.label} ({gpu.name}); {machine_line()}",
        f"A pass reads {target} of the target, {draft} of the draft; bandwidth {bandwidth}/s.",
        f"Both name the same token {agreement:.0%} of the time. Medians of {num_rounds} rounds.",
    ]
    for temperature, done in answers.items():
        lines += ["", f"Temperature {temperature:g}:", "", *table(done, limit)]
    return "\n".join(lines) + "\n"


def say(text: str) -> None:
    """Report progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", choices=[name for name in MAKERS if name != "cpu"], default="")
    parser.add_argument("--tiny", action="store_true", help="a pair that any device decodes")
    help_text = "of a GPU, in GiB: place a mixture of experts that is too large for it"
    parser.add_argument("--memory", type=float, metavar="GIB", help=help_text)
    parser.add_argument("--folder", type=Path, help="of the files (default: user cache)")
    parser.add_argument("--tools", type=Path, help="folder of llama-server (default: build it)")
    parser.add_argument("--without-server", action="store_true", help="measure specchat alone")
    parser.add_argument("--bandwidth", type=float, help="of the GPU's memory, in GB/s")
    parser.add_argument("--tokens", type=int, default=256, help="per answer")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--minutes", type=float, default=7.0, help="after which no round begins")
    parser.add_argument("--output", type=Path, help="file for the tables, besides stdout")
    return parser.parse_args()


def main() -> None:
    """Provide the build, measure, and print the tables."""
    options = parse_arguments()
    use_build(options.backend)
    deadline = time.monotonic() + 60 * options.minutes
    options.shape = TINY if options.tiny else BIG
    options.folder = options.folder or user_cache_path("specchat") / (
        "tiny-pair" if options.tiny else "gpu-pair"
    )
    gpu = find_gpu()
    options.bandwidth = 1e9 * options.bandwidth if options.bandwidth else bandwidth_of(gpu)
    page = (
        measure_placements(options, gpu) if options.memory else measure_pair(options, gpu, deadline)
    )
    if options.output:
        options.output.write_text(page, "utf-8")
    print(page, end="")


if __name__ == "__main__":
    main()
