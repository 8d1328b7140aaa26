"""What clients call the fields of a request, and which of theirs change nothing here."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

ALIASES: Mapping[str, tuple[str, ...]] = {
    "max_tokens": ("max_completion_tokens", "max_output_tokens", "n_predict", "num_predict"),
    "n": ("n_cmpl",),
    "repeat_penalty": ("repetition_penalty",),
    "stop": ("stop_sequences",),
}
"""Other names of a field, in the APIs of OpenAI, Anthropic, llama.cpp, LM Studio and vLLM. One that
is given counts before the field's own name: it is the newer one, or the program's own."""
WITHOUT_EFFECT: Mapping[str, float] = {
    "typical_p": 1,
    "typ_p": 1,
    "tfs_z": 1,
    "xtc_probability": 0,
    "dry_multiplier": 0,
    "mirostat": 0,
    "mirostat_mode": 0,
    "dynatemp_range": 0,
    "smoothing_factor": 0,
    "top_n_sigma": 0,
    "adaptive_target": 0,
    "min_tokens": 0,
    "n_probs": 0,
    "post_sampling_probs": 0,
    "functions": 0,
    "guided_json": 0,
    "guided_regex": 0,
    "guided_choice": 0,
    "guided_grammar": 0,
    "stop_token_ids": 0,
    "bad_words": 0,
}
"""Fields that would change an answer elsewhere, most of them samplers, with the value that switches
each off. A number below 0, null and an empty list do so, too."""


def with_own_names(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of a request by specchat's names, and what those were called that differ.

    A value of null is as good as none.
    """
    fields, sent = dict(given), dict[str, str]()
    for name, aliases in ALIASES.items():
        found = [alias for alias in aliases if fields.get(alias) is not None]
        if found:
            sent[name] = found[0]
            fields[name] = fields[found[0]]
    return fields, sent


def notices_of(given: Mapping[str, Any], known: Collection[str]) -> Iterator[str]:
    """Yield a notice for each field that would change the answer elsewhere, and does not here.

    The fields that the API itself knows do.
    """
    for name, off in WITHOUT_EFFECT.items():
        value = None if name in known else given.get(name)
        if value and value != off and not (isinstance(value, int | float) and value < 0):
            yield f"{name} is not supported and has no effect"
