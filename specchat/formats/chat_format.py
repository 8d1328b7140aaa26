"""A chat format: how a model's template writes prompts, and how to parse the model's output.

Most formats are learned by rendering the template (`learning.py`). Families whose templates do not
show every mark have a file each (see `families.py`).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from specchat.errors import InvalidOption, TemplateError
from specchat.formats.call_format import CallFormat
from specchat.formats.chat_message import ChatMessage
from specchat.formats.generic_calls import GENERIC, calls_as_text, description_of_tools
from specchat.formats.marks import Marks, State
from specchat.formats.messages import (
    alternating,
    asked_before_call,
    checked,
    checked_tools,
    checked_variables,
    has_system,
    leaves_out_system,
    with_object,
    with_one_system,
    with_system,
    with_text,
    without_system,
)
from specchat.formats.template import Variables, render
from specchat.options.declarations import AUTO_THINK, THINK_NUMBER, think_values

BLOCKS = "blocks"
"""The `reasoning_field` of templates that take reasoning as a typed part of the content."""
MADE_UP, MADE_UP_SYSTEM = "Qx7 made up", "Qx8 made up"
"""A question and a system prompt that are sure not to occur in any template."""
GENERATIONS: dict[str, str] = {}
"""A cache of generation prompts, by template and variables."""
MAX_GENERATIONS = 32
MAX_DIGITS = 9
SYSTEM_LEFT_OUT = "the model's template dropped the system prompt in this conversation"
SYSTEM_MOVED = (
    "the model's template has no system role: the system prompt was put before the first question"
)
TOOLS_DESCRIBED = "the model's template leaves out tools: the system prompt describes them"
CALLS_GENERIC = (
    "the model's template shows no readable tool calls: tools are offered and called in specchat's"
    " generic form"
)


@dataclass(frozen=True, slots=True)
class Wrapping:
    """The text before and after a part, including white space; either may be empty."""

    begin: str = ""
    end: str = ""


USUAL_REASONING = Wrapping("<think>\n", "\n</think>\n\n")


@dataclass(frozen=True, slots=True)
class Roles:
    """Which messages a template accepts, and in what form.

    With `later_system` it writes system prompts anywhere, not only at the beginning. With `tools`
    it describes those that are offered.
    """

    system: bool = True
    later_system: bool = True
    developer: bool = False
    tools: bool = True
    tool: bool = True
    calls: bool = True
    must_alternate: bool = False
    wants_typed_content: bool = False
    wants_object_arguments: bool = True


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A conversation as text. The answer begins in `state`, or continues there if `goes_on`."""

    text: str
    state: State
    notices: tuple[str, ...] = ()
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How a template writes prompts and how its model writes answers.

    `marks` lists the marks that end each state. For formats with headers, `decide` maps a header's
    text to the state it announces; an answer may start with a header (`first_state`). `reasoning`
    is None if the template does not support reasoning. `content` is empty if answers have no marks
    of their own; with `marks_reasoned_only`, only answers after reasoning have them. Messages hold
    reasoning in the field `reasoning_field`, "" if the template ignores it; `keeps_reasoning` is
    True if the template writes the reasoning of earlier answers. `switches` maps the values of
    `--think` to template variables; `number_switch` is a variable that takes a number of tokens.
    `ends` are the marks that end an answer; the model may also write those in `stops` as ordinary
    text. `calls` is how tool calls are written. `arrange` makes the last changes to messages before
    they are rendered.
    """

    template: str
    bos: str = ""
    eos: str = ""
    marks: Marks = field(default_factory=dict)
    reasoning: Wrapping | None = None
    content: Wrapping = Wrapping()
    marks_reasoned_only: bool = False
    reasoning_field: str = ""
    keeps_reasoning: bool = False
    switches: Mapping[str, Variables] = field(default_factory=dict)
    number_switch: str = ""
    roles: Roles = Roles()
    ends: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    calls: CallFormat = GENERIC
    decide: Callable[[str], State] | None = None
    first_state: State = "start"
    arrange: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] | None = None

    @property
    def thinking(self) -> tuple[str, ...]:
        """The values that `--think` accepts besides "auto"."""
        return (*self.switches, *([THINK_NUMBER] if self.number_switch else []))

    @property
    def facts(self) -> dict[str, Any]:
        """A summary of what the template shows, as JSON types."""
        marks = self.reasoning and {"begin": self.reasoning.begin, "end": self.reasoning.end}
        calls = {"begin": self.calls.begin, "end": self.calls.end}
        return {
            "reasoning": marks,
            "keeps_reasoning": self.keeps_reasoning,
            "think": list(self.thinking),
            "tool_calls": None if self.calls.is_generic else calls,
            "system_prompt": self.roles.system,
            "ends": list(self.ends),
        }

    def prompt(
        self,
        messages: Sequence[ChatMessage],
        *,
        think: str,
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] | None = None,
        told: str = "",
        opens_answer: bool = True,
    ) -> RenderedPrompt:
        """Return a conversation as text; an answer at its end is left open for continuation.

        Unless it `opens_answer`, no answer follows, and one at its end is over.

        The template gets `variables` beside its own. It also gets `tools` if it describes them and
        shows calls; otherwise the system prompt describes them. What is `told` to the model is
        added to the system prompt, too; where the conversation has none, to the one that the
        template writes then. Raises InvalidOption for a
        malformed message, tool or variable or an unknown value of `think`, and TemplateError if the
        template fails or refuses the conversation.
        """
        messages = checked(messages)
        switched, notices = self._think_variables(think)
        given = {**switched, **checked_variables(variables or {})}
        if not opens_answer:
            given["add_generation_prompt"] = False
        is_begun = opens_answer and messages[-1]["role"] == "assistant"
        begun = messages[-1] if is_begun else None
        kept = messages[:-1] if begun else messages
        is_generic, added = self.calls.is_generic, [told] if told else []
        if tools and self.roles.tools and not is_generic:
            given["tools"] = checked_tools(tools)
        elif tools:
            added.append(description_of_tools(checked_tools(tools), self.calls.text))
            kept = calls_as_text(kept) if is_generic else kept
            notices += (CALLS_GENERIC if is_generic else TOOLS_DESCRIBED,)
        if added:
            usual = "" if has_system(kept) else self._usual_system_prompt(switched)
            kept = with_system(kept, [usual, *added] if usual else added)
        text, moved = self._render(kept, given)
        generation = self._generation_prompt(kept, given)
        state = self.state_after(generation)
        goes_on = begun is not None and bool(begun["content"] or begun.get("reasoning_content"))
        if begun and goes_on:
            written, state = self._unfinished_answer(begun, state, generation)
            text += written
        notice = SYSTEM_MOVED if moved else SYSTEM_LEFT_OUT if leaves_out_system(kept, text) else ""
        return RenderedPrompt(text, state, (*notices, *filter(None, [notice])), goes_on)

    def state_after(self, generation: str) -> State:
        """Return the state in which the answer starts after a generation prompt.

        The generation prompt may open the reasoning. If it also closes it, the answer follows,
        although a small model may still reason.
        """
        if self.reasoning is None:
            return self.first_state
        begin, end = self.reasoning.begin.strip(), self.reasoning.end.strip()
        if not begin:
            return "reasoning"
        is_open = generation.rfind(begin) > generation.rfind(end)
        return "reasoning" if is_open else self.first_state

    def _generation_prompt(self, messages: Sequence[ChatMessage], given: Variables) -> str:
        """Return the generation prompt: what the template writes after the last message.

        It does not depend on the message, so a made-up one is rendered, which is easy to find.
        """
        is_tool = bool(messages) and messages[-1]["role"] == "tool"
        key = json.dumps([self.template, is_tool, given], sort_keys=True)
        if key not in GENERATIONS:
            with suppress(TemplateError):
                asked: list[ChatMessage] = [{"role": "user", "content": MADE_UP}]
                if is_tool:
                    asked = [*asked_before_call(), {**messages[-1], "content": MADE_UP}]
                GENERATIONS[key] = self._render(asked, given)[0].rpartition(MADE_UP)[2]
            while len(GENERATIONS) > MAX_GENERATIONS:
                GENERATIONS.pop(next(iter(GENERATIONS)), None)
        return GENERATIONS.get(key, "")

    def _usual_system_prompt(self, given: Variables) -> str:
        """Return the system prompt that the template writes where a conversation has none."""
        asked: list[ChatMessage] = [{"role": "user", "content": MADE_UP}]
        try:
            usual, _ = self._render(asked, given)
            told, is_moved = self._render(
                [{"role": "system", "content": MADE_UP_SYSTEM}, *asked], given
            )
        except TemplateError:
            return ""
        begin, found, end = told.partition(MADE_UP_SYSTEM)
        is_around = bool(found) and usual.startswith(begin) and usual.endswith(end)
        if is_moved or not is_around or len(usual) <= len(begin) + len(end):
            return ""
        return usual[len(begin) : len(usual) - len(end)].strip()

    def _think_variables(self, think: str) -> tuple[Variables, tuple[str, ...]]:
        """Return the template variables for a value of `--think`, and notices for the user."""
        think = think.lower()
        if think == AUTO_THINK:  # the same default as in llama-server
            is_usual = "enable_thinking" in self.switches.get("on", {})
            return ({"enable_thinking": self.reasoning is not None} if is_usual else {}), ()
        known = {word.lower(): variables for word, variables in self.switches.items()}
        if think in known:
            return known[think], ()
        if self.number_switch and think.isdecimal() and len(think) <= MAX_DIGITS:
            return {self.number_switch: int(think)}, ()
        if not self.switches:
            reason = "the model's template cannot switch reasoning"
            return {}, (f"think = {think} has no effect: {reason}",)
        values = think_values(self.thinking)
        raise InvalidOption(f"this model does not support --think {think}: choose {values}")

    def _render(self, messages: Sequence[ChatMessage], variables: Variables) -> tuple[str, bool]:
        """Return the rendered text, and whether the system prompt was moved into the question.

        If the template refuses the messages, other forms are tried. Raises the first TemplateError
        if it refuses all forms.
        """
        now = datetime.now().astimezone()
        given = {
            "add_generation_prompt": True,
            "bos_token": self.bos,
            "eos_token": self.eos,
            "date_string": now.strftime("%d %b %Y"),
            "datetime": now.strftime("%b %d %Y"),
            "functions": "",
            **variables,
        }
        failures: list[TemplateError] = []
        for way, is_moved in self._forms(messages):
            try:
                return render(self.template, {**given, "messages": self._prepare(way)}), is_moved
            except TemplateError as error:
                failures.append(error)
        raise failures[0]

    def _forms(
        self, messages: Sequence[ChatMessage]
    ) -> Iterator[tuple[Sequence[ChatMessage], bool]]:
        """Yield forms of a conversation, best first, and whether each moves the system prompt.

        A system prompt that the template would drop is always moved. Calls become text if the
        template ignores them or refuses them, as some templates do for a call without a result.
        """
        if not self.roles.later_system:
            messages = with_one_system(messages)
        is_told = has_system(messages)
        has_calls = any(
            "tool_calls" in message or message["role"] == "tool" for message in messages
        )
        if has_calls and not (self.roles.calls and self.roles.tool):
            messages, has_calls = calls_as_text(messages), False
        if not is_told or self.roles.system:
            yield messages, False
        if is_told:
            yield without_system(messages), True
        if has_calls:
            yield from self._forms(calls_as_text(messages))

    def _prepare(self, messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
        """Return messages with the fields that the template expects."""
        found: list[dict[str, Any]] = []
        for message in alternating(messages) if self.roles.must_alternate else messages:
            each: dict[str, Any] = dict(message)
            reasoning = each.pop("reasoning_content", "")
            if each["role"] == "developer" and not self.roles.developer:
                each["role"] = "system"
            if "tool_calls" in each:
                changed = with_object if self.roles.wants_object_arguments else with_text
                each["tool_calls"] = [changed(call) for call in each["tool_calls"]]
            if self.roles.wants_typed_content:
                each["content"] = [{"type": "text", "text": each["content"]}]
            if reasoning and self.reasoning_field == BLOCKS:
                text = {"type": "text", "text": message["content"]}
                each["content"] = [{"type": "thinking", "thinking": reasoning}, text]
            elif reasoning and self.reasoning_field:
                each[self.reasoning_field] = reasoning
            found.append(each)
        return self.arrange(found) if self.arrange else found

    def _unfinished_answer(
        self, begun: ChatMessage, state: State, generation: str
    ) -> tuple[str, State]:
        """Return the text of an unfinished answer as the model writes it, and the state it ends in.

        If the template does not support reasoning, `<think>` is used.
        """
        reasoning, content = begun.get("reasoning_content", ""), begun["content"]
        marks = self.reasoning or USUAL_REASONING
        text = ""
        if reasoning and (self.reasoning or not content):
            text = reasoning if state == "reasoning" else marks.begin + reasoning
            if not content:
                return text, "reasoning"
            text += marks.end
        elif state == "reasoning":
            text = marks.end
        is_open = self.content.begin.strip() and generation.endswith(self.content.begin)
        has_mark = bool(text) if self.marks_reasoned_only else not is_open
        return text + self.content.begin * has_mark + content, "answer"
