"""Families whose templates do not reveal the whole format, and how to recognize them.

All other formats are learned (`learning.py`). To add a family, write its file and add a row here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from specchat.formats import (
    functionary,
    gemma4,
    gigachat,
    gpt_oss,
    kimi_k2,
    kimi_k3,
    lfm2,
    minimax_m3,
    muse_glimmer,
    solar,
)
from specchat.formats.chat_format import ChatFormat, Wrapping
from specchat.formats.learning import learn
from specchat.formats.marks import Mark, usual_marks

FINAL_RESPONSE = "[BEGIN FINAL RESPONSE]"


@dataclass(frozen=True, slots=True)
class Family:
    """A family, recognized by `signs`: texts that all its templates contain.

    `complete` turns the learned format into the family's. A template that contains `other` is not
    of this family.
    """

    name: str
    signs: tuple[str, ...]
    complete: Callable[[ChatFormat], ChatFormat]
    other: str = ""

    def has(self, template: str) -> bool:
        """Return True if a template belongs to this family."""
        is_other = bool(self.other) and self.other in template
        return not is_other and all(sign in template for sign in self.signs)


def _with_calls_after_reasoning(form: ChatFormat) -> ChatFormat:
    """Return the format with marks by which a call may end the reasoning."""
    return replace(form, marks=usual_marks(form, call_ends_reasoning=True))


def _with_spelled_end(form: ChatFormat) -> ChatFormat:
    """Return the format of a model that may write its end mark as ordinary text."""
    return replace(form, stops=form.ends)


def _with_function_tags(form: ChatFormat) -> ChatFormat:
    """Return the format with calls like `<tool_call> <function=f>`, used by Qwen3-Coder and others.

    The model may omit `<tool_call>`, or write it without closing its reasoning first.
    """
    marks = dict(usual_marks(form))
    for state in ("start", "answer"):
        marks[state] = (*marks[state], Mark("<function=", "call"))
    marks["reasoning"] = (*marks["reasoning"], Mark("<tool_call>\n<function=", "call"))
    return replace(form, marks=marks)


def _with_final_response(form: ChatFormat) -> ChatFormat:
    """Return the format of a model that begins to reason of its own, and marks what follows."""
    form = replace(
        form,
        reasoning=Wrapping("Here are my reasoning steps:\n", f"\n{FINAL_RESPONSE}\n"),
        content=Wrapping("", "\n[END FINAL RESPONSE]"),
    )
    marks = dict(usual_marks(form))
    marks["start"] = (*marks["start"], Mark(FINAL_RESPONSE, "answer"))
    return replace(form, marks=marks)


FAMILIES = (
    Family("gpt-oss", ("<|channel|>", "<|message|>", "<|start|>"), gpt_oss.complete),
    Family("Gemma 4", ("<|channel>", "<|tool_call>call:"), gemma4.complete),
    Family("Kimi K2", ("<|tool_calls_section_begin|>", "<|tool_call_begin|>"), kimi_k2.complete),
    Family("Kimi K3", ("<|open|>", "<|close|>", "<|end_of_msg|>"), kimi_k3.complete),
    Family("Muse Glimmer", ("<atem:function_calls>", "<|eom|>"), muse_glimmer.complete),
    Family("Functionary 3.2", (">>>all", ">>>${recipient}"), functionary.complete),
    Family("GigaChat 3", ("<|role_sep|>", "<|message_sep|>"), gigachat.complete,
           other="<|function_call|>"),
    Family("LFM2", ("<|tool_list_start|>",), lfm2.complete),
    Family("LFM2.5", ("List of tools: [",), lfm2.complete),
    Family("MiniMax M3", ("]<]minimax[>[", "<invoke name="), minimax_m3.complete),
    Family("Solar Open", ("<|think|>", "<|content|>", "<|tool_call:name|>"), solar.complete),
    Family("Ling 3", ("<role>ASSISTANT</role>", "<arg_key>"), lambda form: _with_spelled_end(
        _with_calls_after_reasoning(form))),
    Family("Laguna", ("laguna_glm_thinking",), _with_spelled_end),
    Family("Qwen3-Coder, Qwen3.5, Nemotron 3, StepFun 3.5",
           ("<tool_call>", "<function=", "<parameter="), _with_function_tags,
           other="'<tool_call><function=' ~ tool_call.name ~ '>'"),
    Family("DeepSeek V3.2, V4", ("dsml_token", "DSML"), _with_calls_after_reasoning),
    Family("Apriel 1.5", (FINAL_RESPONSE, "[END FINAL RESPONSE]"), _with_final_response),
    Family("Command A, North", ("<|START_TEXT|>", "<|START_ACTION|>"), _with_calls_after_reasoning),
)  # fmt: skip


def completed(form: ChatFormat) -> ChatFormat:
    """Return a learned format, completed if the template belongs to one of the families."""
    for family in FAMILIES:
        if family.has(form.template):
            return family.complete(form)
    return form


@lru_cache(maxsize=8)
def format_of(template: str, bos: str = "", eos: str = "") -> ChatFormat:
    """Return the format of a template; cached."""
    return completed(learn(template, bos, eos))
