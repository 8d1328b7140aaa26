"""Tool calls in the chat: blocks of their own below the answer, also while they are written."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from textual.pilot import Pilot

from scripted_chat import Script, chat
from specchat.chat.store import Store
from specchat.decoding.chunk import Chunk, Piece, ToolCall
from specchat.decoding.statistics import Statistics
from specchat.tui.answer_parts import AnswerParts
from specchat.tui.app import ChatApp
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.markdown.prose import Prose
from specchat.tui.markdown.typesetter import code_blocks
from specchat.tui.widgets.call_text import calls_markdown, pretty_arguments
from tables import table
from tui.driving import say, screen_text, until
from tui.test_asking import notes
from tui.test_reasoning import last

pytestmark = pytest.mark.anyio
SIZE = (110, 40)
WEATHER = ToolCall("get_weather", '{"city": "Paris"}', "1", '<call>{"city": "Paris"}</call>')
TIME = ToolCall("get_time", '{"zone": 1}', "2", "<call>time</call>")


async def test_calls_stand_below_the_answer(tmp_path: Path) -> None:
    """With the tool's name and pretty arguments; stored, and shown again."""
    path = tmp_path / "history.db"
    app = chat(Script(["I will look."], calls=(WEATHER, TIME)), path)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Weather?")
        for is_stored in (False, True):
            if is_stored:
                await app.actions.conversations.open(1)
                await pilot.pause()
            shown = screen_text(app)
            places = [
                shown.index(each)
                for each in (
                    "I will look.",
                    "call: get_weather",
                    '"city": "Paris"',
                    "call: get_time",
                )
            ]
            assert places == sorted(places)
            assert "<call>" not in shown
            assert "writing a call" not in shown
    with Store(path) as store:
        assert store.tree(1).branch(2)[-1].tool_calls == (WEATHER, TIME)


@pytest.mark.slow
async def test_a_call_is_shown_while_it_is_written() -> None:
    """As it is; then its block takes its place, also without any answer."""
    script = Script([""], calls=(WEATHER,), hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Weather?", wait=False)
        await until(pilot, lambda: "writing a call …" in screen_text(app))
        assert WEATHER.raw[:12] in screen_text(app)
        assert script.hold is not None
        script.hold.set()
        await until(pilot, lambda: "call: get_weather" in screen_text(app))
        assert "<call>" not in screen_text(app)


async def copied_with(pilot: Pilot[None], app: ChatApp, key: str) -> str:
    """Return what a key copies from the last answer."""
    app.copier.text = ""
    last(app).arm()
    await pilot.press(key)
    await until(pilot, lambda: bool(app.clipboard) or "no code" in notes(app))
    return app.clipboard


@pytest.mark.slow
async def test_copying_leaves_calls_out() -> None:
    """The text alone is copied, and only its code; a click copies the arguments."""
    app = chat(Script(["Here: \n```py\n1\n```"], calls=(WEATHER,)))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "Weather?")
        assert await copied_with(pilot, app, "c") == "Here: \n```py\n1\n```"
        assert await copied_with(pilot, app, "b") == "1\n"
        rows = screen_text(app).splitlines()
        row = next(number for number, line in enumerate(rows) if "call: get_weather" in line)
        block = last(app).query(Prose).last()
        offset = rows[row].index("copy") - block.region.x, row - block.region.y
        await pilot.click(block, offset=offset)
        await until(pilot, lambda: app.clipboard == '{\n  "city": "Paris"\n}\n')


@pytest.mark.slow
async def test_a_stopped_call_is_shown_and_written_anew() -> None:
    """Continued, the model is sent what is before the call, and writes that again."""
    script = Script(["Let me see. "], calls=(WEATHER,), hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Weather?", wait=False)
        await until(pilot, lambda: last(app).text != "")
        await pilot.press("escape")
        await until(pilot, lambda: app.answers.current is None)
        parts = last(app)._parts
        parts.add([Chunk("", pieces=(Piece("<call>", "target", "call"),))], Statistics())
        app.conversations.finish(app.conversations.tree[2], parts, "cancelled", {})
        await app.view.show_branch()
        await until(pilot, lambda: "unfinished call" in screen_text(app))
        script.hold, script.answers = None, [""]
        await pilot.press("ctrl+g")
        await until(pilot, lambda: len(script.asked) == 2 and app.answers.current is None)
        assert script.asked[1][0][-1] == {"role": "assistant", "content": "Let me see. "}
        assert "unfinished call" not in screen_text(app)
        assert app.conversations.branch[-1].tool_calls == (WEATHER,)


async def test_a_call_that_cannot_be_read_is_text() -> None:
    """It was shown as a call, and becomes a part of the answer."""
    raw = "<call>nonsense</call>"
    parts = AnswerParts()
    parts.go_on()
    parts.add([Chunk("", pieces=(Piece(raw[:9], "draft", "call"),))], Statistics())
    assert parts.open_call == raw[:9]
    rest = Piece(raw[9:], "target", "call"), Piece(raw, "target", "answer")
    parts.add([Chunk(raw, pieces=rest)], Statistics())
    assert (parts.text, parts.open_call, parts.tool_calls) == (raw, "", [])


async def test_the_beginning_of_the_next_call_is_kept() -> None:
    """A step may complete a call and begin another."""
    parts = AnswerParts()
    parts.go_on()
    pieces = Piece(WEATHER.raw, "draft", "call"), Piece("<call>t", "target", "call")
    parts.add([Chunk("", tool_calls=(WEATHER,), pieces=pieces)], Statistics())
    assert (parts.tool_calls, parts.open_call) == ([WEATHER], "<call>t")
    parts.add([Chunk("", tool_calls=(ToolCall("b", "{}"),))], Statistics())
    assert parts.open_call == ""


def written_chunks(*parts: str | ToolCall) -> list[Chunk]:
    """Return a step for each text and each call."""
    return [
        Chunk(part, pieces=(Piece(part, "target"),))
        if isinstance(part, str)
        else Chunk("", tool_calls=(part,), pieces=(Piece(part.raw, "target", "call"),))
        for part in parts
    ]


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        (["Example:\n", WEATHER, "That was"], [WEATHER]),
        ([WEATHER, "Now ", TIME], [WEATHER]),
        ([WEATHER, TIME, "Both"], [WEATHER, TIME]),
        ([WEATHER, WEATHER, "Twice", WEATHER], [WEATHER, WEATHER]),
        (["Look: ", WEATHER, "\n"], []),
        ([WEATHER], []),
    ],
)
async def test_calls_before_the_end_of_the_text_stay(
    parts: list[str | ToolCall], kept: list[ToolCall]
) -> None:
    """The model continues the text, so it writes anew only what came after it."""
    answer = AnswerParts()
    answer.go_on()
    answer.add(written_chunks(*parts), Statistics())
    text = answer.text
    answer.go_on()
    assert answer.tool_calls == kept
    answer.add(written_chunks(" it.", TIME), Statistics())
    assert (answer.text, answer.tool_calls) == (f"{text} it.", [*kept, TIME])
    calls = "".join(each.text for each in answer.pieces if each.kind == "call")
    assert calls == "".join(each.raw for each in [*kept, TIME])


async def test_a_call_in_progress_is_stored_as_text() -> None:
    """If the chat ends there, nothing is lost; the answer replaces it when it is complete."""
    with Store(None) as store:
        conversations = Conversations(store, "pair")
        number = conversations.answer(conversations.ask("Hi", []).id).id
        parts = AnswerParts()
        parts.go_on()
        parts.add(written_chunks("One: ", WEATHER, "two: "), Statistics())
        raw = TIME.raw
        begun = (
            Piece(raw[:4], "draft", "call"),
            Piece("", "draft"),
            Piece(raw[4:8], "target", "call"),
        )
        parts.add([Chunk("", pieces=begun)], Statistics())
        conversations.writes.write(number, parts)
        stored = store.tree(1)[number]
        assert (stored.text, stored.tool_calls) == (f"One: two: {raw[:8]}", (WEATHER,))
        assert "".join(each.text for each in stored.pieces if each.kind == "answer") == stored.text
        assert stored.pieces[1] == Piece(WEATHER.raw, "target", "call")

        rest = Piece(raw[8:], "target", "call")
        parts.add([Chunk("", tool_calls=(TIME,), pieces=(rest,))], Statistics())
        conversations.finish(conversations.tree[number], parts, "stop", {})
        stored = store.tree(1)[number]
        assert (stored.text, stored.tool_calls) == ("One: two: ", (WEATHER, TIME))
        assert stored.pieces == tuple(parts.pieces)


async def test_a_token_that_ends_a_call_and_begins_another_is_cut() -> None:
    """Only the beginning of the next call is text."""
    parts = AnswerParts(pieces=[Piece("<c>1</c><c>2", "draft", "call")], open_call="<c>2")
    pieces = Piece("<c>1</c>", "draft", "call"), Piece("<c>2", "draft")
    assert parts.text_so_far == ("<c>2", pieces)


HOSTILE = {
    "escapes": ('a\x1b[31m\x07"\n~~~\nb', '{"a": "\\u001b[31m", "b": "\x1b]0;x\x07"}'),
    "fences": ("a`b", "~~~\n```\nnot JSON\n~~~~"),
    "markup": ("[bold]x[/]", '{"a": "[link=x]y[/link] <b>"}'),
    "nesting": ("deep", "[" * 100_000),
    "a long number": ("n", "1" * 10_000),
    "nothing": ("", ""),
}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", HOSTILE)
async def test_calls_are_shown_harmlessly(name: str) -> None:
    """Names and arguments are the model's: nothing in them reaches the terminal or the layout."""
    tool, arguments = HOSTILE[name]
    call = ToolCall(tool, arguments, raw=f"\x1b[5m{arguments[:30]}")
    app = chat(Script(["Before."], calls=(call,), hold=threading.Event()))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Do harm", wait=False)
        await until(pilot, lambda: "Before." in screen_text(app))
        shown = [screen_text(app)]
        await pilot.press("escape")
        await until(pilot, lambda: app.answers.current is None)
        answer, parts = app.conversations.tree[2], AnswerParts("Before.", tool_calls=[call])
        app.conversations.finish(answer, parts, "stop", {})
        await app.view.show_branch()
        app.view.transcript.scroll_home(animate=False)
        await until(pilot, lambda: "Do harm" in screen_text(app).partition("\n")[2])
        shown.append(screen_text(app))
    assert "call: " in shown[-1]
    for each in shown:
        assert not any(ord(c) < 32 and c != "\n" for c in each)
        assert not set(each) & set("\u202e\x7f\x9b")


@table("name", HOSTILE)
def test_a_call_cannot_leave_its_block(name: str) -> None:
    """Whatever it contains, each call is one block of code, and so is an unfinished one."""
    tool, arguments = HOSTILE[name]
    call = ToolCall(tool, arguments)
    text = calls_markdown([call, TIME], arguments or "x", is_growing=True)
    blocks = code_blocks(text)
    assert len(blocks) == 3
    assert json.loads(blocks[1]) == {"zone": 1}
    assert blocks[0].rstrip("\n") == pretty_arguments(arguments).rstrip("\n")
