"""Endpoints that clients of other servers ask for and a pair for text cannot serve."""

import re

from specchat.server.api_errors import NOT_FOUND, NOT_SUPPORTED, ApiError

OTHER_APIS = "/api/"
"""Where Ollama, LM Studio and KoboldCpp have their own APIs; their clients ask which one it is."""
NOT_OTHERS = "this is specchat, without the APIs of Ollama or LM Studio: use OpenAI's, under /v1"
ANOTHER_MODEL = "{} not supported: this model generates text"
STORED = "{called} is not supported: this server stores nothing"
SENTENCES = {
    r"/embeddings?": ANOTHER_MODEL.format("embeddings are"),
    r"/(rerank(ing)?|score)": ANOTHER_MODEL.format("rankings are"),
    r"/(classify|pooling)": ANOTHER_MODEL.format("classification and pooling are"),
    r"/moderations": ANOTHER_MODEL.format("moderations are"),
    r"/(images|videos)/.*": ANOTHER_MODEL.format("images and videos are"),
    r"/(audio|realtime)(/.*)?": ANOTHER_MODEL.format("speech and audio are"),
    r"/lora-adapters": "adapters are not loaded here: serve a model that has them merged in",
    r"/slots/\d+": "slots are not saved by request: what was read is kept by itself",
    r"/(files|uploads|batches|fine_tuning|assistants|threads|conversations|vector_stores)(/.*)?": (
        STORED
    ),
    r"/((chat/completions|responses)/.+|messages/batches(/.*)?)": STORED,
}
"""What to say of a path."""
NO_RETRY = {"x-should-retry": "false"}
"""Else OpenAI's and Anthropic's packages ask three times, as after any status from 500 on."""


def why_absent(path: str, called: str) -> ApiError:
    """Return the error for a path that no endpoint has, which the client `called` otherwise."""
    if path.startswith(OTHER_APIS):
        return ApiError(NOT_FOUND, NOT_OTHERS)
    for pattern, sentence in SENTENCES.items():
        if re.fullmatch(pattern, path):
            return ApiError(NOT_SUPPORTED, sentence.format(called=called), headers=NO_RETRY)
    return ApiError(NOT_FOUND, f"no such endpoint: {called}")
