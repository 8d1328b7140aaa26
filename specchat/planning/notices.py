"""Notices about a pair's files that work, but not as well as they could."""

from collections.abc import Iterator

from specchat.gguf.draft_kinds import kind_of
from specchat.gguf.header import Header
from specchat.gguf.purpose import purpose_text
from specchat.gguf.vocabulary_facts import lacks_pre_tokenizer


def notices_of_pair(target: Header, draft: Header | None, wanted: int, ctx: int) -> Iterator[str]:
    """Yield the notices about a pair with a context of `ctx` tokens, one line each.

    The user asked for `wanted` tokens; 0 means the model's own context size.
    """
    longest = target.longest_context
    if wanted > ctx == target.num_positions:
        yield (
            f"{target.name} supports at most {ctx} tokens: using a context of {ctx} instead of"
            f" {wanted}"
        )
    elif 0 < longest < ctx:
        yield (
            f"the context of {ctx} tokens exceeds the {longest} that {target.name} was trained on:"
            " quality may drop beyond that"
        )
    yield from notices_of_file(target)
    if draft and not kind_of(draft).is_head and lacks_pre_tokenizer(draft):
        yield f"the draft model {_is_old(draft)}; look for a newer conversion"


def notices_of_file(header: Header) -> Iterator[str]:
    """Yield the notices about a target's file, one line each."""
    if what := purpose_text(header):
        yield f"{header.name} is {what}: its text may be poor"
    if lacks_pre_tokenizer(header):
        yield f"{_is_old(header)}: answers may be worse; look for a newer conversion"


def _is_old(header: Header) -> str:
    return f"{header.path.name} is an old file that does not name its pre-tokenizer"
