"""Answers are split into reasoning, answer and calls, wherever the stream cuts them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specchat.formats.answer_reader import AnswerReader
from specchat.formats.call_format import CallFormat, CallText
from specchat.formats.chat_format import ChatFormat, Wrapping
from specchat.formats.functionary import complete as functionary
from specchat.formats.gemma4 import complete as gemma4
from specchat.formats.gpt_oss import complete as gpt_oss
from specchat.formats.kimi_k3 import complete as kimi_k3
from specchat.formats.marks import State, usual_marks
from specchat.formats.minimax_m3 import complete as minimax_m3
from tables import table


def json_calls(begin: str, end: str = "") -> CallFormat:
    """Return the format of calls in JSON between two marks; the first one may be JSON's own."""
    opening = begin.removesuffix("{") + '{"name": "'
    return CallFormat(begin, end, CallText(opening, f"}}{end}", named='", "arguments": '))


def usual(*, reasons: bool = True, wraps: bool = False) -> ChatFormat:
    """Return a format with the usual marks."""
    form = ChatFormat(
        "",
        reasoning=Wrapping("<think>\n", "\n</think>\n\n") if reasons else None,
        content=Wrapping("<response>", "</response>") if wraps else Wrapping(),
        calls=json_calls("<tool_call>", "</tool_call>"),
    )
    return ChatFormat("", form.bos, form.eos, usual_marks(form), form.reasoning, form.content,
                      calls=form.calls)  # fmt: skip


PLAIN = usual(reasons=False)
CALL = '<tool_call>{"name": "f", "arguments": {"a": "<"}}</tool_call>'
CASES: list[tuple[ChatFormat, State, str, str, str]] = [
    (usual(), "start", "<think>\nbecause\n</think>\n\nYes.", "because", "Yes."),
    (usual(), "reasoning", "because\n</think>\n\nYes.", "because", "Yes."),
    (usual(), "start", "Yes.", "", "Yes."),
    (usual(), "start", "  \n<think></think>Yes.", "", "Yes."),
    (usual(), "answer", "Yes <think> no </think>.", "", "Yes <think> no </think>."),
    (usual(), "start", "It ends with </think>, see?", "", "It ends with </think>, see?"),
    (usual(), "reasoning", "a </thin b <think> c", "a </thin b <think> c", ""),
    (usual(), "reasoning", "one\n\ntwo \n", "one\n\ntwo", ""),
    (usual(wraps=True), "start", "<think>a</think><response>b</response>", "a", "b"),
    (PLAIN, "start", "<think>because</think>Yes.", "because", "Yes."),
    (PLAIN, "start", "◁think▷because◁/think▷Yes.", "because", "Yes."),
    (PLAIN, "start", "No <think> here", "", "No <think> here"),
    (PLAIN, "start", "[THINK]a</think>b[/THINK]c", "a</think>b", "c"),
    (usual(), "start", f"Look: {CALL} done", "", "Look: done"),
    (usual(), "start", "<tool_call>not JSON</tool_call>.", "", "<tool_call>not JSON</tool_call>."),
    (
        gpt_oss(PLAIN),
        "start",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi",
        "hm",
        "Hi",
    ),
    (gpt_oss(PLAIN), "start", "Hi without a channel", "", "Hi without a channel"),
    (gpt_oss(PLAIN), "start", "<|channel|>final Hi", "", "<|channel|>final Hi"),
    (functionary(PLAIN), "header", "Hi without a recipient", "", "Hi without a recipient"),
    (functionary(PLAIN), "header", "all\nHi>>>all", "", "Hi"),
    (usual(wraps=True), "start", "<response>b</response>\nP.S.", "", "bP.S."),
    (usual(wraps=True), "answer", "b</response></response>", "", "b"),
    (gemma4(PLAIN), "answer", "Hi<channel|> more", "", "Himore"),
    (PLAIN, "start", " \n ", "", " \n "),
    (usual(wraps=True), "start", " </response>b", "", " b"),
    (usual(), "start", "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
    (usual(), "start", "<think><think>a</think></think>b", "<think>a", "</think>b"),
    (usual(), "reasoning", f"a {CALL} b</think>c", f"a {CALL} b", "c"),
    (gemma4(PLAIN), "start", "<|channel>thought\nhm<channel|>Hi<channel|>", "hm", "Hi"),
    (gemma4(PLAIN), "start", "<|channel>thought\n<channel|>Hi", "", "Hi"),
    (
        kimi_k3(PLAIN),
        "reasoning",
        "hm<|close|>think<|sep|><|open|>response<|sep|>Hi<|close|>response<|sep|>",
        "hm",
        "Hi",
    ),
]


def parts_of(reader: AnswerReader, pieces: list[str]) -> tuple[str, str]:
    """Return the reasoning and the answer of a text that arrives in pieces."""
    parts = [part for piece in pieces for part in reader.read(piece)] + reader.finish()
    reasoning = "".join(text for kind, text in parts if kind == "reasoning")
    return reasoning, "".join(text for kind, text in parts if kind == "answer")


@table(("form", "state", "text", "reasoning", "answer"), CASES)
def test_an_answer_is_split_into_its_parts(
    form: ChatFormat, state: State, text: str, reasoning: str, answer: str
) -> None:
    """At once, and character by character."""
    assert parts_of(AnswerReader(form, state), [text]) == (reasoning, answer)
    assert parts_of(AnswerReader(form, state), list(text)) == (reasoning, answer)


@given(st.sampled_from(CASES), st.lists(st.integers(1, 120)))
def test_cuts_change_nothing(
    case: tuple[ChatFormat, State, str, str, str], cuts: list[int]
) -> None:
    """Marks may arrive in any pieces."""
    form, state, text, *expected = case
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(places)]

    assert parts_of(AnswerReader(form, state), pieces) == tuple(expected)


@given(st.text(alphabet="<>/think|tool_call {}\n", max_size=60), st.sampled_from(CASES))
def test_any_text_is_read_alike_in_pieces_and_whole(
    text: str, case: tuple[ChatFormat, State, str, str, str]
) -> None:
    """Whatever a model utters."""
    whole, split = (AnswerReader(case[0], case[1]) for _ in range(2))

    assert parts_of(whole, [text]) == parts_of(split, list(text))
    assert whole.calls == split.calls


def test_what_was_read_is_never_taken_back() -> None:
    """Of each beginning of an answer, what is certain is a beginning of the whole."""
    for form, state, text, reasoning, answer in CASES:
        reader, so_far = AnswerReader(form, state), {"reasoning": "", "answer": "", "call": ""}
        for character in text:
            for kind, added in reader.read(character):
                so_far[kind] += added
            assert reasoning.startswith(so_far["reasoning"])
            assert answer.startswith(so_far["answer"])


def test_the_beginning_of_a_mark_is_left_out_where_the_answer_was_cut() -> None:
    """An answer that ended by itself keeps it: it is text then."""
    for is_cut, kept in ((True, "a "), (False, "a <tool")):
        reader = AnswerReader(usual(), "answer")
        parts = reader.read("a <tool") + reader.finish(is_cut=is_cut)
        assert "".join(text for _, text in parts) == kept


def test_calls_are_read_when_they_are_complete() -> None:
    """Two in a row, with what they look like while they are written."""
    reader = AnswerReader(usual())
    parts = reader.read(CALL * 2)

    assert [(call.name, call.arguments) for call in reader.calls] == [("f", '{"a": "<"}')] * 2
    assert [call.id for call in reader.calls] == ["call00000", "call00001"]
    assert "".join(text for kind, text in parts if kind == "call") == CALL * 2


def test_a_call_whose_end_did_not_come_counts_if_it_is_whole() -> None:
    """One that is not is given back as text: nothing is lost."""
    whole, broken = AnswerReader(usual()), AnswerReader(usual())
    whole.read(CALL.removesuffix("</tool_call>"))
    whole.finish()
    broken.read('<tool_call>{"name": "f", "argu')

    assert [call.name for call in whole.calls] == ["f"]
    assert ("answer", '<tool_call>{"name": "f", "argu') in broken.finish()


@pytest.mark.parametrize("offers", [True, False])
def test_bare_json_is_a_call_only_where_tools_are_offered(offers: bool) -> None:
    """Elsewhere it is an answer."""
    form = ChatFormat("", calls=json_calls("{"))
    form = ChatFormat("", marks=usual_marks(form), calls=form.calls)
    tools = [{"type": "function", "function": {"name": "f"}}] if offers else []
    reader = AnswerReader(form, "start", tools)
    text = '{"name": "f", "arguments": {}}'
    answer = "".join(part for kind, part in reader.read(text) + reader.finish() if kind == "answer")

    assert (answer, len(reader.calls)) == (("", 1) if offers else (text, 0))


def test_reasoning_that_a_known_mark_began_ends_with_its_mark() -> None:
    """Also of a template whose models may call a tool without closing their reasoning."""
    form = ChatFormat("", marks=usual_marks(PLAIN, call_ends_reasoning=True), calls=PLAIN.calls)
    ended, called = AnswerReader(form), AnswerReader(form)

    assert parts_of(ended, ["[THINK]a[/THINK]b"]) == ("a", "b")
    assert parts_of(called, ["<think>a" + CALL]) == ("a", "")
    assert len(called.calls) == 1


@table("end", ["</think>", "</thinking>", "[/THINK]"])
def test_continued_reasoning_ends_with_any_known_mark(end: str) -> None:
    """The one it began with is not stored."""
    reader = AnswerReader(PLAIN, "reasoning", goes_on=True)

    assert parts_of(reader, list(f" see.{end}\n\nYes.")) == (" see.", "Yes.")


def test_a_begin_mark_that_the_prompt_had_already_is_left_out() -> None:
    """MiniMax M3 may repeat it."""
    form = minimax_m3(replace(PLAIN, reasoning=Wrapping("<mm:think>", "</mm:think>")))

    assert parts_of(AnswerReader(form, "reasoning"), ["<mm:think>a</mm:think>b"]) == ("a", "b")


def test_white_space_where_the_answer_was_cut_is_kept() -> None:
    """A continued answer goes on after it; nothing is given back twice."""
    reader = AnswerReader(usual(), "reasoning")

    assert reader.read("one \n") == [("reasoning", "one")]
    assert reader.finish(is_cut=True) == [("reasoning", " \n")]
    assert reader.finish(is_cut=True) == []


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("state", "filling"),
    [("reasoning", "\n"), ("start", "\n"), ("start", CALL[:12] + " "), ("start", "<think"),
     ("header", "<|channel|>")],
)  # fmt: skip
def test_long_texts_are_read_in_linear_time(state: State, filling: str) -> None:
    """In quadratic time this test would take minutes."""
    reader = AnswerReader(gpt_oss(PLAIN) if state == "header" else usual(), state)
    for character in filling * (300_000 // len(filling)):
        reader.read(character)

    assert sum(len(text) for _, text in reader.finish(is_cut=True)) <= 300_000


SEARCH = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
WANTED = '{"name": "search", "arguments": {"q": "x"}}'
OTHER = '{"name": "Bob", "arguments": {"a": 1}}'


def with_calls(begin: str, end: str = "") -> ChatFormat:
    """Return a format whose calls begin so."""
    form = ChatFormat("", calls=json_calls(begin, end))
    return replace(form, marks=usual_marks(form))


@table(
    ("begin", "offered", "text", "answer", "names"),
    [
        ("functools", False, f"Use functools like {OTHER} now.", None, []),
        ("functools", True, f"Use functools like {OTHER} now.", None, []),
        ("functools", True, f"functools[{WANTED}]", "", ["search"]),
        ("Action:", True, f"Plan.\nAction: ```json\n[{WANTED}]\n```", "Plan.\n", ["search"]),
        ("{", True, f"{WANTED}\n\nI will wait.", "I will wait.", ["search"]),
        ("{", True, '{"result": {"sum": 3}}', None, []),
        ("{", False, WANTED, None, []),
        ("[TOOL_CALLS]", False, f"[TOOL_CALLS][{WANTED}]", "", ["search"]),
        ("[TOOL_CALLS]", True, f"[TOOL_CALLS][{WANTED}] Wait.", "Wait.", ["search"]),
    ],
)
def test_words_that_begin_calls_are_text_where_no_call_follows(
    begin: str, offered: bool, text: str, answer: str | None, names: list[str]
) -> None:
    """Words and braces count with tools alone, for calls of these; what follows is text."""
    reader = AnswerReader(with_calls(begin), "start", [SEARCH] if offered else ())

    assert parts_of(reader, list(text)) == ("", text if answer is None else answer)
    assert [call.name for call in reader.calls] == names


@table(
    "text",
    [
        "Wrap calls in <tool_call> and </tool_call> tags.",
        "Bye <tool_call>x</tool_call>\n\n# Next",
        '<tool_call>{"q": "a" "b", "filter": {"a": {"x": 1}}}</tool_call>',
        '<tool_call>{"filter": {"a": 1}}</tool_call>',
    ],
)
def test_what_is_no_call_stays_in_the_answer_to_the_letter(text: str) -> None:
    """With its white space; an object inside malformed JSON is not taken for a call."""
    reader = AnswerReader(usual(), "answer", [SEARCH])

    assert parts_of(reader, list(text)) == ("", text)
    assert reader.calls == []


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "search", "arguments": {"filter": {"a": 1}}',
        '<tool_call>{"name": "search", "argu',
    ],
)
@pytest.mark.parametrize("offers", [True, False])
def test_a_call_that_was_cut_is_text_only_where_no_tools_are_offered(
    text: str, offers: bool
) -> None:
    """Its arguments are not taken for a call of their own."""
    reader = AnswerReader(usual(), "answer", [SEARCH] if offers else ())
    parts = [*reader.read(text), *reader.finish(is_cut=True)]

    assert "".join(part for kind, part in parts if kind == "answer") == ("" if offers else text)
    assert reader.calls == []


@table(
    ("text", "is_call"),
    [
        ('{"name": "search", "arg', True),
        ('{ "name":"sea', True),
        ('{"na', True),
        ('{"name": "Bob", "age', False),
        ('{"result": {"sum', False),
    ],
)
def test_bare_json_that_was_cut_is_text_unless_it_begins_a_call(text: str, is_call: bool) -> None:
    """It may be an answer in JSON."""
    reader = AnswerReader(with_calls("{"), "start", [SEARCH])
    parts = [*reader.read(text), *reader.finish(is_cut=True)]

    assert "".join(part for kind, part in parts if kind == "answer") == ("" if is_call else text)


def test_a_call_cut_after_its_name_has_not_empty_arguments() -> None:
    """Ended by the model there, it has."""
    called = "<|channel|>commentary to=functions.search <|constrain|>json<|message|>"
    for is_cut, names in ((True, []), (False, ["search"])):
        reader = AnswerReader(gpt_oss(PLAIN), "start", [SEARCH])
        reader.read(called)
        reader.finish(is_cut=is_cut)
        assert [call.name for call in reader.calls] == names


@table(
    ("form", "text", "answer"),
    [
        (functionary(PLAIN), "all\nType >>> in the shell.", "Type >>> in the shell."),
        (functionary(PLAIN), "all\nHi>>>all", "Hi"),
        (
            gpt_oss(PLAIN),
            "<|channel|>analysis<|message|>R<|end|><|start|>assistant<|channel|>final It is 4.",
            "final It is 4.",
        ),
    ],
)  # fmt: skip
def test_text_in_place_of_a_header_is_shown(form: ChatFormat, text: str, answer: str) -> None:
    """A header that never ends is dropped after other parts only if it is short."""
    assert parts_of(AnswerReader(form, form.first_state), list(text))[1] == answer


QUOTING = (
    '<tool_call>{"name": "f", "arguments": {"a": "</tool_call> \\" </tool_call>"}}</tool_call>'
)
BROKEN = '<tool_call>{"name": "f, "arguments": {}}</tool_call>'


@table("size", [1, 5, 1000])
@table(
    ("text", "answer", "calls"),
    [
        (QUOTING, "", ['{"a": "</tool_call> \\" </tool_call>"}']),
        (
            f"Look: {QUOTING}{CALL}",
            "Look: ",
            ['{"a": "</tool_call> \\" </tool_call>"}', '{"a": "<"}'],
        ),
        (f"{BROKEN}Hm. {CALL}", f"{BROKEN}Hm. ", ['{"a": "<"}']),
        (f"{BROKEN}Hm.", f"{BROKEN}Hm.", []),
    ],
)
def test_a_mark_within_a_string_does_not_end_a_call(
    size: int, text: str, answer: str, calls: list[str]
) -> None:
    """If the call cannot be read, the mark did end it: nothing after it is lost."""
    reader = AnswerReader(PLAIN, "answer")
    parts = [
        part
        for start in range(0, len(text), size)
        for part in reader.read(text[start : start + size])
    ]
    parts += reader.finish()

    assert [call.arguments for call in reader.calls] == calls
    assert "".join(part for kind, part in parts if kind == "answer") == answer


def test_many_marks_within_a_string_take_little_time() -> None:
    """A model may repeat itself for ever."""
    text = '<tool_call>{"name": "f", "arguments": {"a": "' + "</tool_call>" * 20_000
    reader = AnswerReader(PLAIN, "answer")
    parts = reader.read(text) + reader.finish()

    assert "".join(part for kind, part in parts if kind == "answer") == text
