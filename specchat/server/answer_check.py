"""`verify`: an answer is decoded once more, plainly, and both are compared token by token."""

from dataclasses import replace
from typing import Any

from specchat.drafter_registry import PLAIN
from specchat.requests.answer_request import AnswerRequest
from specchat.server.answer_figures import timings_of
from specchat.server.served_answer import ServedAnswer
from specchat.server.service import PLAIN_NAME, Service

SHOWN = 8
"""Tokens that a reply shows from where two answers part."""


async def check_answer(
    service: Service, request: AnswerRequest, answer: ServedAnswer
) -> dict[str, Any]:
    """Return whether plain decoding gives the same tokens, both speeds and the check's own timings.

    The check is a request of its own: of the API "check", and of the plain variant of the model.
    The request has a seed or temperature 0, without which no two answers are alike.
    """
    asked = replace(request, drafter=PLAIN, prediction="")
    model = service.choose(f"{service.name}:{PLAIN_NAME}").name
    client = answer.served.client
    async with service.answer(asked, api="check", client=client, model=model) as plain:
        await plain.whole()
    tokens, plain_tokens = answer.tokens, plain.tokens
    pairs = enumerate(zip(tokens, plain_tokens, strict=False))
    shorter = min(len(tokens), len(plain_tokens))
    first_difference = next((index for index, (one, other) in pairs if one != other), shorter)
    result: dict[str, Any] = {
        "identical": tokens == plain_tokens,
        "tokens": len(tokens),
        "seed": request.seed,
        "plain_tokens_per_second": plain.statistics.tokens_per_second,
        "tokens_per_second": answer.statistics.tokens_per_second,
        "plain_timings": timings_of(plain.statistics),
    }
    if not result["identical"]:
        result["parts_at"] = first_difference
        result["tokens_there"] = tokens[first_difference : first_difference + SHOWN]
        result["plain_tokens_there"] = plain_tokens[first_difference : first_difference + SHOWN]
    return result
