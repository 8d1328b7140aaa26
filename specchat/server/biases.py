"""Reads `logit_bias`: by token or by text, as an object or as a list of pairs."""

import math
from collections.abc import Mapping
from typing import Any

from specchat.errors import ContextFull
from specchat.options.conversions import LARGEST_BIAS, LARGEST_TOKEN
from specchat.server.api_errors import BAD_REQUEST, ApiError
from specchat.server.service import Service
from specchat.sharing.prompt_process import PromptProcess

FIELD = "logit_bias"
MOST_TEXTS = 1000
LONGEST_ID = 10
"""Digits of a token; more of them are a text."""


async def token_biases(given: Any, service: Service) -> dict[int, float]:
    """Return biases by token; as with OpenAI, -100 and less ban a token, as `false` does.

    A text stands for each of its tokens, as with llama-server. Raises ApiError.
    """
    pairs = await service.off_loop(_checked, given)
    texts = {key: await _tokens_of(key, service) for key, _ in pairs if isinstance(key, str)}

    def by_token() -> dict[int, float]:
        biases = dict[int, float]()
        for key, bias in pairs:
            biases.update(dict.fromkeys(texts[key] if isinstance(key, str) else (key,), bias))
        return biases

    return await service.off_loop(by_token)


def _checked(given: Any) -> list[tuple[int | str, float]]:
    """Return the biases that are given, by token or by text. Raises ApiError."""
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
        message = f"{FIELD} must be an object, or a list of pairs, of a token or text and a number"
        raise ApiError(BAD_REQUEST, message, FIELD)
    found = list[tuple[int | str, float]]()
    for key, value in pairs:
        if value > LARGEST_BIAS:
            raise ApiError(BAD_REQUEST, f"{FIELD}: a bias is at most {LARGEST_BIAS:,.0f}", FIELD)
        token = _token_of(key)
        bias = -math.inf if value is False or value <= -100 else float(value)
        found.append((key if token is None else token, bias))
    if sum(isinstance(key, str) for key, _ in found) > MOST_TEXTS:
        raise ApiError(BAD_REQUEST, f"{FIELD}: at most {MOST_TEXTS} texts", FIELD)
    return found


def _is_pair(given: Any) -> bool:
    if not isinstance(given, list | tuple) or len(given) != 2:
        return False
    key, value = given
    is_number = isinstance(value, int | float) and value is not True
    return is_number and isinstance(key, int | str) and not isinstance(key, bool)


def _token_of(key: int | str) -> int | None:
    """Return the token that is named by its number, None for a text. Raises ApiError."""
    if isinstance(key, str):
        digits = key.strip()
        if not digits.isdecimal() or len(digits) > LONGEST_ID:
            return None
        key = int(digits)
    if not 0 <= key <= LARGEST_TOKEN:
        raise ApiError(BAD_REQUEST, f"{FIELD}: a token is from 0 to {LARGEST_TOKEN}", FIELD)
    return key


async def _tokens_of(text: str, service: Service) -> list[int]:
    try:
        return await service.prompts.call(PromptProcess.tokenize, text, special=False, begins=False)
    except ContextFull:
        raise ApiError(BAD_REQUEST, f"{FIELD}: a text is too long", FIELD) from None
