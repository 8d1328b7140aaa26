"""`/props` and `/slots`: what llama-server's clients ask about a server and its work."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from specchat import __version__
from specchat.options.declarations import GenerateOptions
from specchat.requests.answer_request import GenerateRequest
from specchat.server.activity import ServedRequest
from specchat.server.service import Service
from specchat.sharing.prompt_process import PromptProcess
from specchat.sharing.ticket_line import most_in_turn

IN_TURN = frozenset({"reading", "writing"})
SAMPLING = (
    *("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last_n"),
    *("presence_penalty", "frequency_penalty", "seed", "stop"),
)
"""The options of an answer that llama-server has by the same names."""


async def props(request: Request) -> JSONResponse:
    """Describe the server: its context, template and usual options. The model's path stays here."""
    service: Service = request.app.state.service
    prompts = await service.prompts.call(PromptProcess.facts)
    return JSONResponse(
        {
            "default_generation_settings": {
                "id": 0,
                "n_ctx": service.facts.context,
                "speculative": not service.facts.speculation_off_reason,
                "is_processing": any(each.state in IN_TURN for each in service.activity.live()),
                "params": settings_of(GenerateRequest("", **service.defaults)),
            },
            "total_slots": _num_slots(service),
            "model_alias": service.name,
            "model_path": service.file_name,
            "modalities": {"vision": service.facts.takes_images, "audio": False},
            "chat_template": prompts.chat_template,
            "bos_token": prompts.bos,
            "eos_token": prompts.eos,
            "build_info": f"specchat {__version__}",
            "is_sleeping": False,
        }
    )


async def slots(request: Request) -> JSONResponse:
    """Return the answers that take turns, without their texts, and the places that are free."""
    service: Service = request.app.state.service
    count = _num_slots(service)
    in_turn = [each for each in service.activity.live() if each.state in IN_TURN][:count]
    places = [*in_turn, *[None] * (count - len(in_turn))]
    return JSONResponse([_slot(place, each, service) for place, each in enumerate(places)])


def settings_of(options: GenerateOptions) -> dict[str, Any]:
    """Return the options of an answer under llama-server's names; -1 means no limit."""
    most = -1 if options.max_tokens is None else options.max_tokens
    sampling = {name: getattr(options, name) for name in SAMPLING}
    return {**sampling, "n_predict": most, "max_tokens": most}


def _num_slots(service: Service) -> int:
    """Return how many answers may be in progress."""
    return most_in_turn(service.facts)


def _slot(place: int, served: ServedRequest | None, service: Service) -> dict[str, Any]:
    slot = {
        "id": place,
        "n_ctx": service.facts.context,
        "speculative": not service.facts.speculation_off_reason,
        "is_processing": served is not None,
    }
    if served is None:
        return slot
    statistics = served.statistics
    return {
        **slot,
        "id_task": served.number,
        "n_prompt_tokens": statistics.prompt_tokens,
        "n_prompt_tokens_cache": statistics.cached_tokens,
        "n_prompt_tokens_processed": statistics.prompt_tokens - statistics.cached_tokens,
        "next_token": [{"has_next_token": True, "n_decoded": statistics.generated_tokens}],
    }
