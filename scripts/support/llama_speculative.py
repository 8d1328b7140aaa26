"""One answer of llama.cpp's own `llama-speculative-simple`, with the figures that it prints."""

from __future__ import annotations

import argparse
import re
import subprocess
from dataclasses import dataclass

DECODED = re.compile(r"decoded\s+(\d+) tokens in\s+([\d.]+) seconds")
ACCEPTED = re.compile(r"accept\s+=\s+([\d.]+)%")


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one process."""

    tokens_per_second: float
    acceptance_rate: float
    overhead_share: float = 0.0


def run_llama_cpp(options: argparse.Namespace, prompt: str, temperature: float, seed: int) -> Run:
    """Decode with llama.cpp's tool, which prints its own figures."""
    words = (
        options.tool, "-m", options.folder / "target.gguf", "-md", options.folder / "draft.gguf",
        "--spec-type", "draft-simple", "--spec-draft-n-max", options.draft_length,
        "--spec-draft-p-min", 0, "-p", prompt, "-n", options.tokens, "-c", 2048,
        "-t", options.threads, "-tb", options.threads, "-s", seed, "--ignore-eos",
        "--temp", temperature, "--top-k", 40, "--top-p", 1, "--min-p", 0,
        "--samplers", "top_k;temperature",
    )  # fmt: skip
    done = subprocess.run(list(map(str, words)), capture_output=True, check=True)
    printed = (done.stdout + done.stderr).decode("utf-8", "replace")
    decoded, accepted = DECODED.search(printed), ACCEPTED.search(printed)
    if decoded is None:
        raise SystemExit(f"{options.tool} printed no decode rate:\n{printed[-2000:]}")
    rate = int(decoded[1]) / float(decoded[2])
    return Run(rate, float(accepted[1]) / 100 if accepted else 0.0)
