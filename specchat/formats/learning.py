"""Learning a chat format: render the template with made-up messages and compare the results.

The idea is taken from llama.cpp's auto-parser (`docs/autoparser.md` in its repository).
"""

import re
from dataclasses import replace

from specchat.errors import TemplateError
from specchat.formats.call_learning import TEXT_ARGUMENTS, call_cases, learn_calls
from specchat.formats.chat_format import BLOCKS, ChatFormat, Roles, Wrapping
from specchat.formats.generic_calls import GENERIC
from specchat.formats.marks import KNOWN_REASONING, usual_marks
from specchat.formats.probes import (
    ANSWER,
    CALL_ID,
    FIELDS,
    FUNCTION,
    KEY,
    MARK,
    NEXT,
    OTHER_FUNCTION,
    QUESTION,
    REASONING,
    REMINDER,
    RESULT,
    SYSTEM,
    TOOLS,
    VALUE,
    Probes,
    assistant,
    call,
    closer_of,
    common_end,
    common_start,
    conversation,
    is_closer,
    marks_in,
    system,
    user,
)
from specchat.formats.switch_learning import learn_switches, switch_cases
from specchat.formats.template import Variables

PAIR = re.compile(r"(<(\w[\w:-]*)>)(</\2>)")
REASONING_PAIR = re.compile(r"(<(\w*(?:think|thought|reason)\w*)>)(</\2>)")
"""An empty pair of tags, as in system prompts such as "reason in <think></think>"."""
KNOWN = dict(KNOWN_REASONING)
"""The end mark of reasoning that a prompt opens, where only the model knows it."""
SPLIT = re.compile(r"""(?:split\(\s*|in\s+|\b)['"](</[\w:-]+>|\[/[A-Z]+\])['"]\s*(?:\)|in\b)""")
"""Code that looks for the end mark of reasoning: `split('</think>')`, `'</think>' in`."""

WITH_TOOLS = ("no call", "one call", "one call as text", "tool", "tool as text")
"""Conversations with two tools of which one is called at most."""


def learn(template: str, bos: str, eos: str) -> ChatFormat:
    """Return the format of a template; an empty one if the template always fails."""
    probes = Probes(template, bos, eos)
    try:
        probes.look()
        probes.render({**_cases(), **call_cases(), **switch_cases(probes)})
        if not any(probes.texts.values()):
            return ChatFormat(template, bos, eos)  # rendering more could take as long again
        switches, number_switch = learn_switches(probes)
        probes.render(_reasoning_cases(switches.get("on", {})))
    except TemplateError:  # the template is too long, which is reported when it is used
        return ChatFormat(template, bos, eos)
    reasoning, reasoning_field = _learn_reasoning(probes)
    content = _learn_content(probes, reasoning)
    ends = _learn_ends(probes, content)
    marks = (reasoning.begin.strip(), reasoning.end.strip()) if reasoning else ()
    found = ChatFormat(
        template,
        bos,
        eos,
        reasoning=reasoning,
        content=content,
        marks_reasoned_only=bool(content.begin) and content.begin not in probes["history"],
        reasoning_field=reasoning_field,
        keeps_reasoning=REASONING in probes.texts.get(f"history {reasoning_field}", ""),
        switches=switches,
        number_switch=number_switch,
        roles=_learn_roles(probes),
        ends=ends,
        calls=learn_calls(probes, ends, marks) or GENERIC,
    )
    return replace(found, marks=usual_marks(found))


def _cases() -> dict[str, Variables]:
    """Return the conversations to render for learning the roles and turns."""
    asked = user(QUESTION)
    followed = user(NEXT)
    cases = {
        "question": conversation(asked, generate=True),
        "question only": conversation(asked),
        "last": conversation(asked, assistant()),
        "history": conversation(asked, assistant(), followed),
        "system": conversation(system(), asked, generate=True),
        "reminder": conversation(
            system(), asked, system(REMINDER), assistant(), followed, generate=True
        ),
        "developer": conversation({"role": "developer", "content": SYSTEM}, asked, generate=True),
        "twice": conversation(asked, followed, generate=True),
        "typed": conversation(
            {"role": "user", "content": [{"type": "text", "text": QUESTION}]}, generate=True
        ),
    }
    result = {"role": "tool", "content": RESULT, "tool_call_id": CALL_ID, "name": FUNCTION}
    called = assistant("", tool_calls=[call()])
    in_text = assistant("", tool_calls=[call(arguments=TEXT_ARGUMENTS)])
    for name, message in (("tool", called), ("tool as text", in_text)):
        cases[name] = conversation(asked, message, result, generate=True, tools=TOOLS)
    return cases


def _reasoning_cases(switched_on: Variables) -> dict[str, Variables]:
    """Return conversations with reasoning in each field that a template may read it from."""
    asked, followed = user(QUESTION), user(NEXT)
    blocks = [{"type": "thinking", "thinking": REASONING}, {"type": "text", "text": ANSWER}]
    shapes = {name: assistant(**{name: REASONING}) for name in FIELDS}
    shapes[BLOCKS] = {"role": "assistant", "content": blocks}
    cases = {}
    for name, message in shapes.items():
        cases[f"last {name}"] = conversation(asked, message, **switched_on)
        cases[f"history {name}"] = conversation(asked, message, followed, **switched_on)
        if name != BLOCKS:
            calling = assistant("", tool_calls=[call()], **{name: REASONING})
            cases[f"calling {name}"] = conversation(asked, calling, tools=TOOLS, **switched_on)
    return cases


def _learn_reasoning(probes: Probes) -> tuple[Wrapping | None, str]:
    """Return the marks around reasoning, and the message field that the template reads it from."""
    for case in ("last", "calling"):
        for name in (*FIELDS, BLOCKS):
            text = probes.texts.get(f"{case} {name}", "")
            if REASONING in text and (found := _around_reasoning(text, _turn_start(probes))):
                return found, name
    return _hinted_reasoning(probes), ""


def _around_reasoning(text: str, turn_start: str) -> Wrapping | None:
    before, _, after = text.partition(REASONING)
    end = re.match(rf"\s*{MARK}\s*", after)
    if end is None:
        return None
    begin = re.search(rf"{MARK}\s*$", before)
    is_of_turn = begin and begin[0].strip() in turn_start and end[0].strip() not in turn_start
    return Wrapping("" if is_of_turn or not begin else begin[0].lstrip(), end[0])


def _turn_start(probes: Probes) -> str:
    """Return the text between a question and an answer that another question follows."""
    text = probes["history"] or probes["last"]
    return text[text.find(QUESTION) + len(QUESTION) : text.find(ANSWER)]


def _hinted_reasoning(probes: Probes) -> Wrapping | None:
    """Return reasoning marks that a template only opens, searches for, or mentions in a prompt."""
    for name, text in probes.texts.items():
        if name.startswith("switch") or name == "question":
            tail = text[text.rfind(QUESTION) + len(QUESTION) :]
            closed = re.search(rf"({MARK}\s*)({MARK}\s*)$", tail)
            if closed and is_closer(closed[2].strip(), closed[1].strip()):
                return Wrapping(closed[1], closed[2])
            if opened := re.search(rf"{MARK}\s*$", tail):
                mark = opened[0].strip()
                closer = closer_of(mark)
                closer = closer if closer and closer in probes.template else KNOWN.get(mark, "")
                if closer:
                    return Wrapping(opened[0], closer)
    for name, text in probes.texts.items():
        if name.startswith("switch") and (pair := REASONING_PAIR.search(text)):
            return Wrapping(pair[1], pair[3])
    if found := SPLIT.search(probes.template):
        return Wrapping(found[1].replace("/", "", 1), found[1])
    return None


def _learn_content(probes: Probes, reasoning: Wrapping | None) -> Wrapping:
    """Return the marks around an answer, excluding those of the turn.

    In `<bot><START_TEXT>Hi<END_TEXT><eot>` the generation prompt is `<bot>`, so `<START_TEXT>` and
    the mark that closes it belong to the answer.
    """
    text, generated = probes["history"], _generation(probes)
    begin = _turn_start(probes)
    for mark in (reasoning.begin.strip(), reasoning.end.strip()) if reasoning else ():
        begin = begin.replace(mark, "") if mark else begin
        generated = generated.partition(mark)[0] if mark else generated
    turn = generated.strip()
    if turn and turn in begin:
        marks = marks_in(begin.rpartition(turn)[2])
    else:
        marks = marks_in(begin.strip()[common_start(begin.strip(), turn) :])[-1:]
    after = re.match(rf"\s*({MARK})", text[text.find(ANSWER) + len(ANSWER) :])
    is_pair = bool(marks and after and is_closer(after[1], marks[-1]))
    if not marks or not (is_pair or turn):
        return _hinted_content(probes, reasoning)
    return Wrapping(marks[-1], after[1] if is_pair and after else "")


def _generation(probes: Probes) -> str:
    """Return the generation prompt."""
    text = probes["question"]
    return text[common_start(text, probes["question only"]) :]


def _hinted_content(probes: Probes, reasoning: Wrapping | None) -> Wrapping:
    """Return the tags around the answer if the prompt asks for them after tags for reasoning."""
    for name, text in probes.texts.items():
        pairs = PAIR.findall(text) if name.startswith("switch") and reasoning else []
        if len(pairs) > 1 and pairs[0][0] == reasoning.begin.strip():  # type: ignore[union-attr]
            return Wrapping(pairs[1][0], pairs[1][2])
    return Wrapping()


def _learn_ends(probes: Probes, content: Wrapping) -> tuple[str, ...]:
    """Return the marks that the template writes after an answer.

    These are the marks that follow the answer both at the end of the conversation and before
    another question. If nothing follows at the end, they are those before the next turn; if the
    next turn follows directly, its first mark.
    """
    text, question, last = probes["history"], probes["question only"], probes["last"]
    answered, followed = text.find(ANSWER), text.rfind(NEXT)
    if answered < 0 or followed < 0:
        return ()
    between = text[answered + len(ANSWER) : followed]
    at_end = last[last.find(ANSWER) + len(ANSWER) :] if ANSWER in last else ""
    ended = between[: common_start(between, at_end)]
    if not ended.strip():
        num_common = common_end(between, question[: question.find(QUESTION)])
        ended = between[: len(between) - num_common]
    marks = marks_in(ended)
    if probes.eos and probes.eos in ended and probes.eos not in marks:
        marks.append(probes.eos)
    marks = marks or marks_in(between)[:1]
    return tuple(mark for mark in marks if mark != content.end.strip())[:2]


def _learn_roles(probes: Probes) -> Roles:
    """Return which messages the template accepts.

    Many templates write any role they are given, so "developer" must occur in the template.
    """
    return Roles(
        system=SYSTEM in probes["system"] and QUESTION in probes["system"],
        later_system=all(each in probes["reminder"] for each in (SYSTEM, QUESTION, REMINDER)),
        tools=any(OTHER_FUNCTION in probes[case] for case in WITH_TOOLS),
        tool=RESULT in probes["tool"] or RESULT in probes["tool as text"],
        calls=VALUE in probes["one call"] or VALUE in probes["one call as text"],
        developer="developer" in probes.template and SYSTEM in probes["developer"],
        must_alternate=bool(probes["question"]) and not probes["twice"],
        wants_typed_content=QUESTION not in probes["question"] and QUESTION in probes["typed"],
        wants_object_arguments=_wants_objects(probes),
    )


def _wants_objects(probes: Probes) -> bool:
    """Return True if arguments should be passed as an object, not as JSON text."""
    as_object, as_text = probes["one call"], probes["one call as text"]
    if not as_object or not as_text:
        return bool(as_object) or not as_text
    return f"'{KEY}': '{VALUE}'" not in as_object  # Python's notation, not JSON
