"""`specchat check`: check on this machine that speculation does not change the output."""

import argparse
from dataclasses import asdict

from specchat.cli.model_arguments import chosen_pair, loading_of, save_loaded, show_loading
from specchat.cli.terminal import DONE, FAILED, print_result, say, show_line, table_lines
from specchat.engine.local_engine import LocalEngine
from specchat.engine.losslessness import CheckedSampling, Parting, PromptCheck, check_prompt
from specchat.errors import InvalidOption, SpecchatError
from specchat.options.declarations import GenerateOptions
from specchat.prompts.chat_text import tokenize_chat
from specchat.sharing.process_engine import try_out
from specchat.wording import exact_drafts, percent

PROMPTS = (
    "What is speculative decoding?",
    "Count from one to twenty.",
    "Write a Python function that adds two numbers.",
    "Tell me a short story about a fox.",
)
USUAL_LENGTH = 3
"""The draft length to check in place of "auto", which varies from step to step."""
HEADINGS = ("prompt", "tokens", "accepted", "compared with plain decoding")


def run(arguments: argparse.Namespace) -> int:
    """Check a few prompts and print the result of each."""
    if arguments.draft_length == 0:
        raise InvalidOption("--draft-length 0 drafts nothing to check: use auto, or 1 or more")
    pair = chosen_pair(arguments)
    loading = loading_of(arguments, pair)
    try_out(loading, show_loading)
    with LocalEngine(loading, show_loading) as engine:
        engine.prepare(show_loading)
        facts = engine.facts
        if off := facts.draft_off_reason if loading.draft else facts.speculation_off_reason:
            raise SpecchatError(f"nothing to check: {off}")
        if notice := save_loaded(arguments, pair, facts):
            say(notice)
        findings = _findings(engine, arguments)
        unused = engine.stats.draft_off_reason
    exact = {name: getattr(facts, name) for name in ("exact_draft", "exact_cost", "common_tokens")}
    record = {**exact, "findings": [asdict(finding) for finding in findings]}
    rows = (
        (
            finding.prompt,
            str(finding.num_tokens),
            percent(finding.acceptance_rate),
            _result(finding),
        )
        for finding in findings
    )
    table = table_lines([HEADINGS, *rows], left=(0, 3))
    lines = [_verdict(findings, facts.exact_draft), *([f"Note: {unused}."] if unused else [])]
    if facts.exact_draft is not None:
        hint = "" if facts.exact_draft or arguments.exact == "on" else "; --exact on may allow some"
        lines.append(f"Bit-exact here: {exact_drafts(facts.exact_draft, facts.exact_cost)}{hint}.")
    lines += [f"Note: {notice}." for notice in facts.notices]
    print_result(arguments, record, [*table, "", *lines])
    has_passed = all(finding.is_lossless and finding.drafted for finding in findings)
    return DONE if has_passed else FAILED


def _findings(engine: LocalEngine, arguments: argparse.Namespace) -> list[PromptCheck]:
    """Check each prompt, at a fixed draft length in place of "auto"."""
    is_auto, temperature = arguments.draft_length == "auto", arguments.temperature
    lengths = arguments.max_tokens, USUAL_LENGTH if is_auto else arguments.draft_length
    if temperature is None:
        temperature = 0.0 if arguments.seed is None else GenerateOptions().temperature
    sampling = CheckedSampling(temperature, arguments.seed or 0)
    findings: list[PromptCheck] = []
    for number, prompt in enumerate(PROMPTS, 1):
        show_line(f"checking prompt {number} of {len(PROMPTS)}")
        if engine.facts.has_chat_template:
            tokens = tokenize_chat(engine.model, [{"role": "user", "content": prompt}])
        else:
            vocabulary = engine.model.vocabulary
            tokens = vocabulary.tokenize(prompt, add_special=True, parse_special=False)
        findings.append(check_prompt(engine, prompt, tokens, *lengths, sampling))
    show_line()
    return findings


def _result(finding: PromptCheck) -> str:
    """Return how an answer compares with plain decoding, and the result of rescoring it."""
    if not finding.drafted:
        return "nothing was drafted, so nothing was checked"
    if finding.ends_differ:
        result = "one answer ends before the other"
    elif finding.parted_at is None:
        has_same_bits = finding.is_lossless and finding.is_exact
        result = "identical, bit for bit" if has_same_bits else "identical"
    else:
        result = (
            f"differs from token {finding.parted_at + 1} on: the two logits are {finding.gap:.2g}"
            f" apart there, and batching changes logits by up to {finding.rounding:.2g}"
        )
    if finding.tree and finding.tree.parted_at is not None:
        result += _result_of_tree(finding.tree)
    if finding.num_inexact:
        result += f"; the logits of {finding.num_inexact} tokens differ bitwise in batches"
    if not finding.num_rescored_off:
        return result
    return (
        f"{result}; rescored, {finding.num_rescored_off} tokens are not the target's choice,"
        f" by at most {finding.largest_off:.2g}"
    )


def _result_of_tree(tree: Parting) -> str:
    """Return how an answer with branches differs from plain decoding."""
    if tree.ends_differ:
        return "; with branches, one answer ends before the other"
    return (
        f"; with branches it differs from token {tree.parted_at + 1 if tree.parted_at else 1} on:"
        f" the two logits are {tree.gap:.2g} apart there, and batching changes logits by up to"
        f" {tree.rounding:.2g}"
    )


def _verdict(findings: list[PromptCheck], exact_draft: int | None) -> str:
    if any(finding.is_exact and not finding.is_lossless for finding in findings):
        return (
            f"NOT exact: drafts of up to {exact_draft} tokens were found to give the same bits as"
            " plain decoding when the model was loaded, but here they do not. Please report this."
        )
    if not all(finding.is_lossless for finding in findings):
        return "NOT lossless: a difference exceeds what rounding explains. Please report this."
    if not all(finding.drafted for finding in findings):
        return "Inconclusive: for some prompts nothing was drafted. Try a larger --max-tokens."
    if all(finding.is_exact for finding in findings):
        return f"Lossless: identical, bit for bit, for drafts up to {exact_draft}."
    parted = [finding.parted_at for finding in findings]
    parted += [finding.tree.parted_at for finding in findings if finding.tree]
    if not any(index is not None for index in parted):
        return f"Lossless: identical on {len(findings)} prompts."
    return "Lossless: the answers differ only at near ties, as rounding explains."
