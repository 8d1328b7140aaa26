"""Answers and prompts of models as they come: their reasoning, calls, marks and control tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import (
    CHAT_TEMPLATE,
    Piece,
    Vocabulary,
    Words,
    bytes_of,
    pieces_of,
    write_parrot,
)
from specchat.decoding.chunk import Chunk
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.formats.chat_message import ChatMessage
from specchat.planning.text_copies import LEAST_STEP
from specchat.prompts.chat_text import tokenize_chat
from tables import table

Load: TypeAlias = Callable[..., LocalEngine]
ASKED: list[ChatMessage] = [{"role": "user", "content": "Hi"}]
THINK = ("<think>", "</think>")
OPENING = CHAT_TEMPLATE.replace("assistant\n{%", "assistant\n<think>\n{%") + "{# </think> #}"
"""Opens the reasoning in the prompt; it names the end mark where it would look for it."""
DEAF = CHAT_TEMPLATE.replace(
    "{% for message in messages %}", "{% for message in messages if message.role != 'system' %}"
)
SPOKEN_BOS = "{{ bos_token }}" + CHAT_TEMPLATE
HARMONY_MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")
HARMONY = (
    "{# <|channel|> #}{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>"
    "{% endfor %}<|start|>assistant"
)
HARMONY_ANSWER = (
    "<|channel|>analysis<|message|>think hard<|end|><|start|>assistant<|channel|>final<|message|>"
    "Hello user<|return|>"
)


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Return a function that loads a parrot of a text, as its own draft if asked."""
    engines: list[LocalEngine] = []

    def load(
        text: str, marks: Sequence[str] = (), *, drafts: bool = False, cut: Any = pieces_of,
        **words: Any,
    ) -> LocalEngine:  # fmt: skip
        known = Words(**words)
        pieces: list[Piece] = cut(text, [*marks, *known.control, *known.user])
        after = bytes_of("assistant\n") if cut is bytes_of else ()
        path = write_parrot(tmp_path / f"{len(engines)}.gguf", pieces, known, after=after)
        loading = Loading(path, path if drafts else None, ctx=1024, threads=1, learn=False)
        engines.append(LocalEngine(loading))
        return engines[-1]

    yield load
    for engine in engines:
        engine.close()


def chunks_of(engine: LocalEngine, turns: list[ChatMessage] | None = None, **options: Any) -> Any:
    """Return the chunks of an answer."""
    given = {"temperature": 0.0, "max_tokens": 60, **options}
    return list(engine.chat(turns or ASKED, **given))


def parts_of(chunks: list[Chunk]) -> tuple[str, str]:
    """Return the reasoning and the answer of some chunks."""
    return "".join(each.reasoning for each in chunks), "".join(each.text for each in chunks)


@pytest.mark.parametrize("kind", ["control", "user", "normal"])
@pytest.mark.parametrize("cut", [pieces_of, bytes_of])
def test_reasoning_is_apart_from_the_answer(load: Load, kind: str, cut: Any) -> None:
    """Whatever kind of token its marks are, and where none is one token."""
    words: dict[str, Any] = {"user": {"user": THINK}, "normal": {"normal": THINK}}.get(kind, {})
    if kind == "control":
        words = {"control": ("<|im_start|>", "<|im_end|>", *THINK)}
    engine = load("<think>because</think>\n\nYes.<|im_end|>", cut=cut, **words)
    chunks = chunks_of(engine)

    assert parts_of(chunks) == ("because", "Yes.")
    assert chunks[-1].finish == "stop"
    pieces = [piece for chunk in chunks for piece in chunk.pieces]
    assert "".join(each.text for each in pieces if each.kind == "reasoning") == "because"
    assert 0 < engine.stats.reasoning_tokens < engine.stats.generated_tokens


def test_the_channels_of_gpt_oss_are_read(load: Load) -> None:
    """Its marks are control tokens."""
    engine = load(HARMONY_ANSWER, control=HARMONY_MARKS, template=HARMONY, eos="<|return|>")

    assert parts_of(chunks_of(engine)) == ("think hard", "Hello user")


def test_reasoning_that_the_prompt_opened_stays_reasoning_when_it_is_stopped(load: Load) -> None:
    """It is no answer, and an answer continued from there goes on with it."""
    engine = load("because of that</think>Yes.<|im_end|>", user=THINK, template=OPENING)
    stopped = chunks_of(engine, max_tokens=2)
    begun: ChatMessage = {
        "role": "assistant", "content": "", "reasoning_content": parts_of(stopped)[0],
    }  # fmt: skip
    continued = chunks_of(engine, [*ASKED, begun])

    assert parts_of(stopped) == ("because of", "")
    assert parts_of(chunks_of(engine)) == ("because of that", "Yes.")
    assert parts_of(continued)[1] == "Yes."


@pytest.mark.slow(keep=7)
@pytest.mark.parametrize("template", [CHAT_TEMPLATE, OPENING])
@pytest.mark.parametrize("num_tokens", [3, 4, 5, 6, 9, 25, 26, 27, 33])
def test_a_continued_answer_is_the_answer_that_was_stopped(
    load: Load, template: str, num_tokens: int
) -> None:
    """Space for space, in its reasoning and after it, whether the template knows of it or not."""
    start = "" if template == OPENING else "<think>"
    text = f"{start}one two three</think>\n\nfour five six.<|im_end|>"
    engine = load(text, user=THINK, template=template, cut=bytes_of)
    whole = parts_of(chunks_of(engine))
    reasoning, answer = parts_of(chunks_of(engine, max_tokens=num_tokens))
    begun: ChatMessage = {
        "role": "assistant", "content": answer, "reasoning_content": reasoning,
    }  # fmt: skip
    more = parts_of(chunks_of(engine, [*ASKED, begun]))

    assert (reasoning + more[0], answer + more[1]) == whole


def test_a_tool_call_is_read_and_is_not_part_of_the_answer(load: Load) -> None:
    """Its marks are shown where the template does not know them: nothing leaves a hole."""
    called = 'A<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>B<|im_end|>'
    marks = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
    calling = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    knowing = chunks_of(load(called, control=marks, template=calling))
    unknowing = chunks_of(load(called, control=marks))

    (call,) = (call for chunk in knowing for call in chunk.tool_calls)
    assert (call.name, call.arguments) == ("f", '{"x": 1}')
    assert parts_of(knowing) == ("", "AB")
    assert parts_of(unknowing) == ("", called.removesuffix("<|im_end|>"))


def test_drafts_change_neither_the_tokens_nor_the_parts(load: Load) -> None:
    """A draft may hold the end of the reasoning, and of the answer."""
    text = "<think>so it is so it is</think>so it is, so it is.<|im_end|>"
    engine = load(text, user=THINK, drafts=True)
    plain = chunks_of(engine, drafter="none")

    for temperature in (0.0, 1.0):
        for drafter in ("model", "suffix", "auto"):
            options = {"temperature": temperature, "drafter": drafter, "draft_length": 5}
            chunks = chunks_of(engine, None, seed=3, min_p=0.1, **options)
            assert parts_of(chunks) == parts_of(plain)
            assert [t for c in chunks for t in c.tokens] == [t for c in plain for t in c.tokens]


def test_earlier_reasoning_is_sent_only_where_the_template_takes_it(load: Load) -> None:
    """Prompts grow as those of a model that does not reason."""
    engine = load("Yes.<|im_end|>")
    reasoned: ChatMessage = {"role": "assistant", "content": "So.", "reasoning_content": "because"}
    plain: ChatMessage = {"role": "assistant", "content": "So."}

    prompts = [tokenize_chat(engine.model, [*ASKED, each, *ASKED]) for each in (reasoned, plain)]
    assert prompts[0] == prompts[1]


def test_a_system_prompt_is_never_dropped_in_silence(load: Load) -> None:
    """It goes before the question, and the statistics hold the notice."""
    engine = load("Yes.<|im_end|>", template=DEAF)
    chunks_of(engine)
    without, notices = engine.stats.prompt_tokens, engine.stats.notices
    chunks_of(engine, [{"role": "system", "content": "Be brief."}, *ASKED])

    assert notices == ()
    assert engine.stats.prompt_tokens > without
    assert "has no system role" in engine.stats.notices[0]


def test_a_stop_string_may_name_a_control_token(load: Load) -> None:
    """The answer ends before it, though the token prints as its name only."""
    marks = ("<|im_start|>", "<|im_end|>", "<|my_end|>")
    engine = load("Yes<|my_end|>No", control=marks)

    assert parts_of(chunks_of(engine, stop=["<|my_end|>"])) == ("", "Yes")


@pytest.mark.parametrize("cut", [pieces_of, bytes_of])
def test_the_mark_that_ends_a_turn_may_be_ordinary_text(load: Load, cut: Any) -> None:
    """The template says what ends a turn; the vocabulary need not know."""
    words = {"control": ("</s>",), "eos": "</s>"}
    engine = load("hi<|im_end|>\n<|im_start|>user again", cut=cut, **words)
    chunks = chunks_of(engine)

    assert parts_of(chunks) == ("", "hi")
    assert chunks[-1].finish == "stop"


def test_a_raw_prompt_may_hold_a_chat(load: Load) -> None:
    """Its marks become tokens, as the template's do; with `special` off they are text."""
    engine = load("Yes.<|im_end|>")
    written = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    wanted = len(tokenize_chat(engine.model, ASKED))
    counts = []
    for special in (True, False):
        list(engine.generate(written, max_tokens=1, special=special))
        counts.append(engine.stats.prompt_tokens)

    assert counts[0] == wanted
    assert counts[1] > 2 * wanted


@pytest.mark.parametrize("sentencepiece", [False, True])
def test_no_end_token_stands_before_the_part_to_write(load: Load, sentencepiece: bool) -> None:
    """Also where texts end with one."""
    words = {"control": ("<s>", "<|im_start|>", "<|im_end|>"), "bos": "<s>", "add_bos": True}
    ends = load("x<|im_end|>", add_eos=True, sentencepiece=sentencepiece, **words)
    plain = load("x<|im_end|>", sentencepiece=sentencepiece, **words)
    counts = []
    for engine in (ends, plain):
        list(engine.generate("abc", max_tokens=1))
        counts.append(engine.stats.prompt_tokens)

    assert counts[0] == counts[1]
    assert tokenize_chat(ends.model, ASKED) == tokenize_chat(plain.model, ASKED)


@pytest.mark.parametrize(
    "template", [CHAT_TEMPLATE, SPOKEN_BOS, "\n" + SPOKEN_BOS, "{{ '\\n' }}" + SPOKEN_BOS]
)
def test_a_prompt_begins_with_one_bos(load: Load, template: str) -> None:
    """Whether the template writes it, after a line break or not, or leaves it to the vocabulary."""
    words = {"control": ("<s>", "<|im_start|>", "<|im_end|>"), "bos": "<s>", "add_bos": True}
    engine = load("x<|im_end|>", template=template, **words)
    tokens = tokenize_chat(engine.model, ASKED)
    list(engine.generate("<s>abc", max_tokens=1))

    assert tokens[0] == engine.model.vocabulary.bos()
    assert tokens.count(tokens[0]) == 1
    assert engine.stats.prompt_tokens == 4


@pytest.mark.parametrize("name", ["<think>", "<|im_start|>", "<|fim|>"])
def test_marks_that_a_user_types_stay_text(load: Load, name: str) -> None:
    """Control tokens, and tokens that the makers added as marks; HTML and runs of spaces do not."""
    words = {"user": ("<think>", "<|fim|>", "<b>", "   ")}
    template = CHAT_TEMPLATE + "{# <think> #}"
    engine = load("x<|im_end|>", template=template, **words)
    vocabulary = engine.model.vocabulary

    def tokens_of(content: str) -> list[str]:
        tokens = tokenize_chat(engine.model, [{"role": "user", "content": content}])
        return [vocabulary.name(token) for token in tokens]

    plain, typed = tokens_of("say "), tokens_of(f"say {name}")
    assert typed.count(name) == plain.count(name)
    assert len(typed) == len(plain) + len(name)
    assert {"<b>", "   "} <= set(tokens_of("say <b>   "))


def test_a_character_that_the_end_cuts_is_completed_by_going_on(load: Load) -> None:
    """It is never a replacement character."""
    engine = load("a 🦙 b<|im_end|>", cut=bytes_of)
    stopped = parts_of(chunks_of(engine, max_tokens=4))[1]

    assert stopped == "a "


@table("architecture", ["mamba", "qwen35", "lfm2"])
def test_a_recurrent_memory_reads_only_what_is_new(tiny: WriteModel, architecture: str) -> None:
    """Although the next prompt leaves out the reasoning that the prompt opened and the model wrote.

    Such a memory cannot return to any place, but to the one from where the next prompt differs.
    """
    kind = Vocabulary(chat_template=OPENING)
    path = tiny(architecture, vocabulary=kind)
    asked: list[ChatMessage] = [{"role": "user", "content": "words " * 40}]
    with LocalEngine(Loading(path, ctx=2048, threads=1, learn=False)) as engine:
        read = []
        for _ in range(3):
            chunks = chunks_of(engine, asked, max_tokens=30, ignore_end=True)
            stats = engine.stats
            read.append(stats.prompt_tokens - stats.cached_tokens)
            answer = "".join(piece.text for chunk in chunks for piece in chunk.pieces)
            said: list[ChatMessage] = [
                {"role": "assistant", "content": answer[:20].strip() or "x"},
                {"role": "user", "content": "And?"},
            ]
            asked += said

    assert read[0] > 200
    assert max(read[1:]) < 80


@pytest.mark.parametrize("cache_ram", [None, 0])
@table("architecture", ["mamba", "qwen35", "granitehybrid", "gemma3"])
def test_an_edited_conversation_is_read_from_near_the_edit(
    tiny: WriteModel, architecture: str, cache_ram: int | None
) -> None:
    """Wherever it is edited, if there is memory for states.

    Without it four are kept, from which at least the next turn and the next conversation begin.
    """
    path = tiny(architecture, vocabulary=Vocabulary(chat_template=OPENING))
    text: list[ChatMessage] = [{"role": "system", "content": "rules " * 60}]
    loading = Loading(path, ctx=8192, threads=1, learn=False, cache_ram=cache_ram)
    with LocalEngine(loading) as engine:
        ends: list[int] = []
        read: list[int] = []

        def ask(messages: list[ChatMessage]) -> None:
            chunks_of(engine, messages, max_tokens=4)
            ends.append(engine.stats.prompt_tokens)
            read.append(engine.stats.prompt_tokens - engine.stats.cached_tokens)

        for number in range(10):
            text += [{"role": "user", "content": f"{number} " + "words " * 60}]
            ask(text)
            text += [{"role": "assistant", "content": f"{number} " + "answer " * 10}]
        turn = ends[-1] - ends[-2]
        assert max(read[1:]) < turn + 40  # each turn reads the answer, and the new question

        for place in (-2, 13, 5, 1) if cache_ram is None else (1,):
            ask([*text[:place], {"role": "user", "content": "Other " * 60}])
            assert read[-1] <= LEAST_STEP + turn
        ask([text[0], {"role": "user", "content": "Other"}])
        assert read[-1] < 40


def test_marks_in_tools_stay_text(load: Load) -> None:
    """In their descriptions, and in the names of their arguments."""
    engine = load("x<|im_end|>", template="{{ tools or '' }}" + CHAT_TEMPLATE)

    def num_tokens(name: str) -> int:
        properties = {name: {"type": "string"}}
        function = {"name": "f", "description": name, "parameters": {"properties": properties}}
        tools = [{"type": "function", "function": function}]
        chunks_of(engine, tools=tools)
        return engine.stats.prompt_tokens

    assert num_tokens("<|im_start|>") == num_tokens("=" * len("<|im_start|>"))
