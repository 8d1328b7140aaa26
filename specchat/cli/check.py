"""`specchat check`: prove on this machine that a pair decodes losslessly."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from specchat.cli.model_arguments import chosen_pair, loading_options, save_loaded, tell_on_terminal
from specchat.cli.terminal import say
from specchat.engine.api import Loading
from specchat.engine.generate_options import DEFAULT_DRAFT_LENGTH, GenerateOptions
from specchat.engine.local_engine import LocalEngine
from specchat.engine.losslessness import Finding, check_prompt
from specchat.engine.prompts import tokenize_chat
from specchat.errors import InvalidOption, SpecchatError

__all__ = ["run"]

PROMPTS = (
    "What is speculative decoding?",
    "Count from one to twenty.",
    "Write a Python function that adds two numbers.",
    "Tell me a short story about a fox.",
)
FAILED = 1


def run(arguments: argparse.Namespace) -> int:
    """Check a few prompts and say what was measured, never more."""
    options = GenerateOptions(
        draft_length=arguments.draft_length, max_tokens=arguments.max_tokens, temperature=0.0
    )
    if arguments.draft_length == 0:
        raise InvalidOption("a draft length of 0 drafts nothing, so there is nothing to check")
    pair = chosen_pair(arguments)
    if pair.draft is None:
        raise InvalidOption("there is no draft model to check: name one with --draft FILE")
    loading = Loading(pair.target, pair.draft, **loading_options(arguments, pair))
    with LocalEngine(loading, tell_on_terminal) as engine:
        if engine.facts.draft_off:
            raise SpecchatError(f"nothing to check: {engine.facts.draft_off}")
        if told := save_loaded(arguments, pair, engine.facts):
            say(told)
        findings = [
            check_prompt(
                engine, prompt, _tokens(engine, prompt), arguments.max_tokens, _length(options)
            )
            for prompt in PROMPTS
        ]
    if arguments.json:
        print(json.dumps({"findings": [asdict(finding) for finding in findings]}))
    else:
        print("\n".join(_sentence(finding) for finding in findings))
        print(_verdict(findings))
    is_proved = all(finding.is_lossless and finding.drafted for finding in findings)
    return 0 if is_proved else FAILED


def _length(options: GenerateOptions) -> int:
    """Return the draft length to check: "auto" has none of its own, so a usual one."""
    return DEFAULT_DRAFT_LENGTH if options.draft_length == "auto" else options.draft_length


def _tokens(engine: LocalEngine, prompt: str) -> list[int]:
    if engine.facts.has_chat_template:
        return tokenize_chat(engine.model, [{"role": "user", "content": prompt}])
    return engine.model.vocabulary.tokenize(prompt, add_special=True, parse_special=False)


def _sentence(finding: Finding) -> str:
    start = (
        f"{finding.prompt!r}: {finding.num_tokens} tokens, {finding.acceptance_rate:.0%} accepted: "
    )
    if not finding.drafted:
        return f"{start}nothing was drafted, which proves nothing"
    if finding.ends_differ:
        same = "one of the two answers ends where the other goes on"
    elif finding.parted_at is None:
        same = "identical to plain decoding"
    else:
        same = (
            f"parts from plain decoding at token {finding.parted_at + 1}, where the two tokens are"
            f" {finding.gap:.2g} apart and a batch moves the logits by up to {finding.rounding:.2g}"
        )
    if not finding.num_rescored_off:
        return f"{start}{same}; scored again, every token is the target's best"
    return (
        f"{start}{same}; scored again, {finding.num_rescored_off} tokens are not the target's best,"
        f" by {finding.largest_off:.2g} at most"
    )


def _verdict(findings: list[Finding]) -> str:
    if not all(finding.is_lossless for finding in findings):
        return "NOT lossless: a difference is larger than rounding explains"
    if not all(finding.drafted for finding in findings):
        return "not proved: where nothing was drafted there was nothing to compare"
    if all(finding.parted_at is None for finding in findings):
        return f"identical on {len(findings)} prompts"
    return "equal but for near ties that rounding explains"
