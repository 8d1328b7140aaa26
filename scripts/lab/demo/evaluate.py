"""Judge the demo pair: what it answers to wordings it never saw, and whether speculation pays."""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

from scripts.lab.demo.llama_model import LlamaModel
from scripts.lab.demo.questions import QUESTIONS

DEMO = Path(__file__).resolve().parents[3] / "specchat" / "catalogue" / "demo"
MAX_TOKENS = 256


@dataclass(slots=True)
class Run:
    """What one way of decoding one answer cost and gave."""

    tokens: list[int]
    seconds: float
    steps: int = 0
    drafted: int = 0
    accepted: int = 0


def as_chat(question: str) -> str:
    """A question as the chat template writes it."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def decode_plainly(target: LlamaModel, prompt: list[int]) -> Run:
    """One token per target pass, at temperature 0."""
    target.cut(0)
    token = int(target.evaluate(prompt)[0].argmax())
    tokens = [token]
    started = time.perf_counter()
    while not target.is_end(token) and len(tokens) < MAX_TOKENS:
        token = int(target.evaluate([token])[0].argmax())
        tokens.append(token)
    return Run(tokens, time.perf_counter() - started, steps=len(tokens) - 1)


def decode_speculatively(
    target: LlamaModel, draft: LlamaModel, prompt: list[int], draft_length: int
) -> Run:
    """Draft, verify in one target pass, keep what matches and one token of the target's own."""
    target.cut(0)
    draft.cut(0)
    run = Run([int(target.evaluate(prompt)[0].argmax())], 0.0)
    draft.evaluate(prompt)
    known = list(prompt)
    started = time.perf_counter()
    while not target.is_end(run.tokens[-1]) and len(run.tokens) < MAX_TOKENS:
        text = known + run.tokens
        proposed = _propose(draft, text, draft_length)
        rows = target.evaluate([text[-1], *proposed], len(proposed) + 1).argmax(-1).tolist()
        kept = 0
        while kept < len(proposed) and rows[kept] == proposed[kept]:
            kept += 1
        new = rows[: kept + 1]
        ends = [index for index, token in enumerate(new) if target.is_end(token)]
        run.tokens += new[: ends[0] + 1] if ends else new
        run.steps += 1
        run.drafted += len(proposed)
        run.accepted += kept
        target.cut(len(text) + kept)
        draft.cut(min(draft.length, len(text) + kept))
    run.seconds = time.perf_counter() - started
    return run


def _propose(draft: LlamaModel, text: list[int], draft_length: int) -> list[int]:
    pending = text[draft.length :]
    proposed: list[int] = []
    while len(proposed) < draft_length:
        token = int(draft.evaluate(pending)[0].argmax())
        proposed.append(token)
        pending = [token]
    return proposed


def report(target: LlamaModel, draft: LlamaModel, draft_lengths: list[int]) -> None:
    """Print every answer, then the rates."""
    num_right = 0
    plain: list[Run] = []
    fast: dict[int, list[Run]] = {length: [] for length in draft_lengths}
    for question in QUESTIONS:
        prompt = target.tokens(as_chat(question.text))
        run = decode_plainly(target, prompt)
        answer = target.text(run.tokens)
        right = target.is_end(run.tokens[-1]) and all(k in answer for k in question.keywords)
        num_right += right
        print(f"{'ok   ' if right else 'WRONG'} {question.text}\n{_indented(answer)}\n")
        plain.append(run)
        for length, runs in fast.items():
            runs.append(decode_speculatively(target, draft, prompt, length))
    print(f"{num_right} of {len(QUESTIONS)} answers are right and end their turn")
    for length, runs in fast.items():
        _print_rates(length, plain, runs)


def _print_rates(length: int, plain: list[Run], runs: list[Run]) -> None:
    rate = sum(r.accepted for r in runs) / sum(r.drafted for r in runs)
    per_step = sum(len(r.tokens) - 1 for r in runs) / sum(r.steps for r in runs)
    same = sum(a.tokens == b.tokens for a, b in zip(plain, runs, strict=True))
    plain_cost = sum(r.seconds for r in plain) / sum(len(r.tokens) - 1 for r in plain)
    cost = sum(r.seconds for r in runs) / sum(len(r.tokens) - 1 for r in runs)
    print(
        f"draft length {length}: acceptance rate {rate:.3f}, tokens per step {per_step:.2f}, "
        f"speedup {plain_cost / cost:.2f} ({1 / plain_cost:.0f} to {1 / cost:.0f} tokens/s), "
        f"{same} of {len(runs)} answers identical"
    )


def print_pass_times(name: str, model: LlamaModel, rounds: int = 40) -> None:
    """The median time of a pass over 1 to 5 tokens."""
    model.cut(0)
    model.evaluate(model.tokens("Once upon a time there was a fox. " * 8))
    start = model.length
    times: dict[int, list[float]] = {count: [] for count in range(1, 6)}
    for _ in range(rounds):
        for count, taken in times.items():
            before = time.perf_counter()
            model.evaluate(list(range(300, 300 + count)), count)
            taken.append(time.perf_counter() - before)
            model.cut(start)
    medians = [sorted(taken)[rounds // 2] * 1e3 for taken in times.values()]
    costs = ", ".join(
        f"{i + 1}: {ms:.3f} ms ({ms / medians[0]:.2f})" for i, ms in enumerate(medians)
    )
    print(f"{name} pass over n tokens: {costs}")


def _indented(text: str) -> str:
    return "\n".join(f"      {line}" for line in text.splitlines())


def main() -> None:
    """Load both files and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=DEMO)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--draft-lengths", type=int, nargs="+", default=[3, 4])
    options = parser.parse_args()
    target = LlamaModel(options.folder / "target.gguf", options.threads)
    draft = LlamaModel(options.folder / "draft.gguf", options.threads)
    report(target, draft, options.draft_lengths)
    print_pass_times("target", target)
    print_pass_times("draft model", draft)


if __name__ == "__main__":
    main()
