r"""Draw a race of plain and speculative decoding as a card.

The picture in README.md shows a real model, SmolLM2-135M-Instruct in Q4_1, without a draft model:

    python scripts/lab/draw_race.py --target SmolLM2-135M-Instruct.Q4_1.gguf --threads 2
        --system "Reply with code only." --stop "\n\n"
        --question "Write a Python function that checks whether a number is prime."
        --question "Add type hints to the function."
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from specchat import Engine
from specchat.bench.race_picture import ENDINGS, card_path, draw
from specchat.bench.race_record import MAX_TOKENS, Race, run_race
from specchat.catalogue.catalogue_file import DEMO
from specchat.catalogue.pairs import find_pair
from specchat.formats.chat_message import ChatMessage

ROUNDS = 3
"""The median of these races is drawn."""
QUESTIONS = ["What is speculative decoding?"]
PICTURE = Path(__file__).with_name("race.svg")


def _ignore(_: object) -> None:
    """Show nothing of how far a race is."""


def race(words: argparse.Namespace) -> Race:
    """Ask all questions but the last, and race the last one several times."""
    demo = find_pair(DEMO)
    files = (words.target, words.draft) if words.target else (demo.target, demo.draft)
    options: dict[str, Any] = {"temperature": 0.0, "max_tokens": MAX_TOKENS, "drafter": "auto"}
    if words.stop:
        options["stop"] = [words.stop.replace(r"\n", "\n")]
    turns: list[ChatMessage] = [{"role": "system", "content": words.system}] if words.system else []
    *before, last = words.question or QUESTIONS
    with Engine.load(*files, threads=words.threads) as engine:
        engine.prepare()
        for question in before:
            turns.append({"role": "user", "content": question})
            answer = "".join(chunk.text for chunk in engine.chat(turns, **options))
            turns.append({"role": "assistant", "content": answer})
        turns.append({"role": "user", "content": last})
        races = [run_race(engine, turns, options, _ignore, _ignore) for _ in range(ROUNDS)]
    races.sort(key=lambda each: each.speedup)
    print("speedups:", *(f"{each.speedup:.2f}" for each in races))
    return races[ROUNDS // 2]


def _parsed() -> argparse.Namespace:
    """Return the words of the command line."""
    parser = argparse.ArgumentParser(description="Draw a race as a card.")
    parser.add_argument("--target", type=Path, help="a GGUF file (default: the demo pair)")
    parser.add_argument("--draft", type=Path, help="its draft model (default: none)")
    parser.add_argument("--threads", type=int, help="default: physical cores")
    parser.add_argument("--system", default="", help="a system prompt")
    parser.add_argument("--stop", help="end answers before this text; backslash n is a new line")
    parser.add_argument("--question", action="append", help="several are asked in turn")
    parser.add_argument("--output", type=Path, default=PICTURE, help="as `specchat race --save`")
    parser.add_argument("--record", type=Path, help="draw this record instead of a new race")
    parser.add_argument("--keep", type=Path, help="also write the record, as JSON")
    parser.add_argument("--moment", type=float, help="draw one moment as SVG: seconds after start")
    return parser.parse_args()


if __name__ == "__main__":
    parsed = _parsed()
    card_path(parsed.output)
    if parsed.record is None:
        drawn = race(parsed)
    else:
        drawn = Race.of_record(json.loads(parsed.record.read_text("utf-8"))) or race(parsed)
    moment = parsed.moment
    write = ENDINGS[parsed.output.suffix]
    parsed.output.write_bytes(write(drawn) if moment is None else draw(drawn, moment).encode())
    if parsed.keep:
        parsed.keep.write_bytes(ENDINGS[".json"](drawn))
    print(f"wrote {parsed.output}: {drawn.summary()}")
