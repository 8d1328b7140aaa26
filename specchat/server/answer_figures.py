"""The figures of an answer: usage, llama.cpp's timings, vLLM's metrics, specchat's own."""

from collections.abc import Mapping, Sequence
from typing import Any

from specchat.decoding.statistics import Statistics
from specchat.drafter_registry import PREDICTION
from specchat.server.activity import ServedRequest


def usage_of(statistics: Statistics) -> dict[str, Any]:
    """Return token counts as OpenAI's chat API has them."""
    drafted, accepted = statistics.by_origin.get(PREDICTION.name, (0, 0))
    return {
        "prompt_tokens": statistics.prompt_tokens,
        "completion_tokens": statistics.generated_tokens,
        "total_tokens": statistics.prompt_tokens + statistics.generated_tokens,
        "prompt_tokens_details": {
            "cached_tokens": statistics.cached_tokens,
            "image_tokens": statistics.image_tokens,
        },
        "completion_tokens_details": {
            "reasoning_tokens": statistics.reasoning_tokens,
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafted - accepted,
        },
    }


def responses_usage(statistics: Statistics) -> dict[str, Any]:
    """Return token counts as OpenAI's responses API has them."""
    usage = usage_of(statistics)
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {**usage["prompt_tokens_details"], "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": usage["completion_tokens_details"],
        "total_tokens": usage["total_tokens"],
    }


def messages_usage(statistics: Statistics) -> dict[str, Any]:
    """Return token counts as Anthropic's API has them: cached tokens are counted apart."""
    return {
        "input_tokens": statistics.prompt_tokens - statistics.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": statistics.cached_tokens,
        "output_tokens": statistics.generated_tokens,
    }


def total_usage(answers: Sequence[ServedRequest]) -> dict[str, Any]:
    """Return the usage of several answers to one prompt, which counts once."""
    first, *others = [usage_of(answer.statistics) for answer in answers]
    for usage in others:
        first["completion_tokens"] += usage["completion_tokens"]
        for name, count in usage["completion_tokens_details"].items():
            first["completion_tokens_details"][name] += count
    first["total_tokens"] = first["prompt_tokens"] + first["completion_tokens"]
    return first


def joint_usage(answers: Sequence[tuple[int, ServedRequest]], num_scored: int) -> dict[str, Any]:
    """Return the usage of answers to several prompts, each of which counts once.

    The answers come with the number of their prompt. `num_scored` tokens were read beside those.
    """
    by_prompt: dict[int, list[ServedRequest]] = {}
    for number, request in answers:
        by_prompt.setdefault(number, []).append(request)
    usages = [total_usage(each) for each in by_prompt.values()] or [usage_of(Statistics())]
    first, *others = usages
    for usage in others:
        _add(first, usage)
    first["prompt_tokens"] += num_scored
    first["total_tokens"] += num_scored
    return first


def _add(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add counts to others of the same form."""
    for name, count in more.items():
        if isinstance(count, Mapping):
            _add(total[name], count)
        else:
            total[name] += count


def timings_of(statistics: Statistics) -> dict[str, Any]:
    """Return llama-server's `timings`: milliseconds, rates, and draft counts.

    As there, the first step belongs to the prompt, whose last token it reads, and what it emits
    counts as predicted, but not in the rate.
    """
    num_read = statistics.prompt_tokens - statistics.cached_tokens
    prompt_s, predicted_s = statistics.until_first_step_s, statistics.later_steps_s
    num_later = statistics.generated_tokens - statistics.first_step_tokens
    return {
        "cache_n": statistics.cached_tokens,
        "prompt_n": num_read,
        "prompt_ms": 1000 * prompt_s,
        "prompt_per_token_ms": 1000 * prompt_s / max(1, num_read),
        "prompt_per_second": _rate(num_read, prompt_s),
        "predicted_n": statistics.generated_tokens,
        "predicted_ms": 1000 * predicted_s,
        "predicted_per_token_ms": 1000 * predicted_s / max(1, num_later),
        "predicted_per_second": _rate(num_later, predicted_s),
        "draft_n": statistics.drafted,
        "draft_n_accepted": statistics.accepted,
    }


def metrics_of(statistics: Statistics, request: ServedRequest) -> dict[str, Any]:
    """Return vLLM's per-request `metrics`."""
    num_gaps = max(1, statistics.generated_tokens - 1)
    return {
        "time_to_first_token_ms": 1000 * (request.waited_s + statistics.time_to_first_token_s),
        "generation_time_ms": 1000 * statistics.later_steps_s,
        "queue_time_ms": 1000 * request.waited_s,
        "mean_itl_ms": 1000 * statistics.later_steps_s / num_gaps,
        "tokens_per_second": statistics.tokens_per_second,
        "speculative_decoding": {
            "mean_acceptance_length": statistics.tokens_per_step,
            "draft_acceptance_rate": statistics.acceptance_rate,
            "acceptance_histogram": statistics.acceptance_histogram,
            "num_spec_steps": statistics.steps,
            "num_accepted_draft_tokens": statistics.accepted,
            "num_draft_tokens": statistics.drafted,
            "num_spec_tokens": max(0, len(statistics.drafted_by_position)),
        },
    }


def own_figures(statistics: Statistics, request: ServedRequest) -> dict[str, Any]:
    """Return specchat's own figures; those of the gain are None unless the answer shows it."""
    by_origin = {
        name: {"drafted": drafted, "accepted": accepted}
        for name, (drafted, accepted) in sorted(statistics.by_origin.items())
    }
    return {
        "drafter": statistics.drafter,
        "speculation_off_reason": statistics.speculation_off_reason,
        "draft_off_reason": statistics.draft_off_reason,
        "short_drafts_reason": statistics.short_drafts_reason,
        "read_again": statistics.read_again,
        "image_tokens": statistics.image_tokens,
        "image_s": statistics.image_s,
        "acceptance_rate": statistics.acceptance_rate,
        "tokens_per_step": statistics.tokens_per_step,
        "nodes": statistics.nodes,
        "forced": statistics.forced,
        "repeated": statistics.repeated,
        "valid": statistics.is_valid,
        "by_origin": by_origin,
        **statistics.gain.as_record(),
        "left_out_messages": statistics.left_out,
        "notices": [*request.notices, *statistics.notices],
    }


def figures_of(request: ServedRequest) -> dict[str, Any]:
    """Return `timings`, `metrics` and `specchat` of an answer."""
    statistics = request.statistics
    return {
        "timings": timings_of(statistics),
        "metrics": metrics_of(statistics, request),
        "specchat": own_figures(statistics, request),
    }


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0
