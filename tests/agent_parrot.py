"""A parrot that plays a model with tools: it calls one, and answers once it has the result.

Its chat template decides by the conversation which mark ends the prompt, and the parrot utters what
follows that mark. So the answer shows what of a conversation arrived in the prompt.
"""

from collections.abc import Mapping
from json import dumps
from pathlib import Path
from typing import Any

from scripts.support.tiny_gguf import Words, pieces_of, write_parrot

TURN, END = "<|im_start|>", "<|im_end|>"
REASONING = ("<think>", "</think>")
CALL = ("<tool_call>", "</tool_call>")
TOOLLESS, FOUND, LOST = "<|toolless|>", "<|found|>", "<|lost|>"
TEMPLATE = """{% if tools %}<|im_start|>system
{% for tool in tools %}{{ tool.function.name }} {% endfor %}<|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}\
{{ message.content[:100] if message.role == 'system' else message.content }}\
{% for call in message.tool_calls or [] %}<tool_call>\
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if messages[-1].role == 'tool' %}\
{{ '<|found|>' if WANTED in messages[-1].content else '<|lost|>' }}\
{% elif not tools %}<|toolless|>{% else %}{% for tool in tools %}\
{% if tool.function.name in MARKS %}<|{{ tool.function.name }}|>{% endif %}\
{% endfor %}{% endif %}{% endif %}"""
"""Most of the system prompt and the descriptions of tools are left out: those of agents have 70,000
bytes, and each is a token here."""
TOOLLESS_TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}\
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if '<tool_response>' in messages[-1].content %}\
{{ '<|found|>' if WANTED in messages[-1].content else '<|lost|>' }}\
{% else %}{% set found = namespace(mark='<|toolless|>') %}{% for name in MARKS %}\
{% if '"name": "' ~ name in messages[0].content %}{% set found.mark = '<|' ~ name ~ '|>' %}\
{% endif %}{% endfor %}{{ found.mark }}{% endif %}{% endif %}"""
"""Knows no tools: the parrot sees only what the messages say of them."""


def write_agent_parrot(
    path: Path,
    calls: Mapping[str, Mapping[str, Any]],
    wanted: str,
    *,
    context_length: int = 4096,
    template: str = TEMPLATE,
) -> Path:
    """Write a parrot that calls the first tool of `calls` that it is offered, by its arguments.

    If the result has the text `wanted`, the answer has it too. Without tools the answer is "Hello."
    """
    space = "\n" if template == TOOLLESS_TEMPLATE else ""
    utterances = {
        TOOLLESS: "Hello.",
        FOUND: f"It says {wanted}.",
        LOST: "I got nothing.",
        **{f"<|{name}|>": call_text(name, given, space) for name, given in calls.items()},
    }
    template = template.replace("WANTED", repr(wanted)).replace("MARKS", repr(tuple(calls)))
    control, user = (TURN, END, *utterances), (*REASONING, *CALL)
    marks = (*control, *user)
    first, *others = [pieces_of(f"{mark}{each}{END}", marks) for mark, each in utterances.items()]
    whole = {piece for each in others for piece in each if piece not in marks}
    words = Words(control=control, user=user, whole=tuple(sorted(whole)), template=template)
    return write_parrot(path, first, words, others=others, context_length=context_length)


def call_text(name: str, given: Mapping[str, Any], space: str = "") -> str:
    """Return what the model writes to call a tool, its reasoning first."""
    call = dumps({"name": name, "arguments": given})
    return f"{REASONING[0]}I need {name}.{REASONING[1]}{CALL[0]}{space}{call}{space}{CALL[1]}"
