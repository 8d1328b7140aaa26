"""`verify`: an answer is decoded once more, plainly, and both are compared token by token."""

from dataclasses import replace
from typing import Any

from specchat.drafter_registry import PLAIN
from specchat.engine.api import AnswerRequest
from specchat.server.service import Answer, Service

SHOWN = 8
"""Tokens that a reply shows from where two answers part."""


async def check_answer(service: Service, request: AnswerRequest, answer: Answer) -> dict[str, Any]:
    """Return whether plain decoding gives the same tokens, and both speeds.

    The request has a seed or temperature 0, without which no two answers are alike.
    """
    asked = replace(request, drafter=PLAIN, prediction="")
    progress = answer.progress
    async with service.answer(
        asked, api=progress.api, client=progress.client, model=progress.model
    ) as plain:
        await plain.whole()
    pairs = enumerate(zip(answer.tokens, plain.tokens, strict=False))
    shorter = min(len(answer.tokens), len(plain.tokens))
    place = next((index for index, (one, other) in pairs if one != other), shorter)
    found: dict[str, Any] = {
        "identical": answer.tokens == plain.tokens,
        "tokens": len(answer.tokens),
        "seed": request.seed,
        "plain_tokens_per_second": plain.statistics.tokens_per_second,
        "tokens_per_second": answer.statistics.tokens_per_second,
    }
    if not found["identical"]:
        found["parts_at"] = place
        found["tokens_there"] = answer.tokens[place : place + SHOWN]
        found["plain_tokens_there"] = plain.tokens[place : place + SHOWN]
    return found
