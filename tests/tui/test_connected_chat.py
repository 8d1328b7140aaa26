"""The chat on a model that a server runs: recorded servers, and `specchat serve` itself."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from connection.recording import Recording, read_recording
from connection.scripted_server import (
    Answer,
    ScriptedServer,
    event_answer,
    json_answer,
    text_answer,
)
from scripted_chat import Script, chat
from server.conftest import Running, StartServer, start_here  # noqa: F401  # a fixture
from specchat.chat.conversation import Message
from specchat.chat.preset import Preset
from specchat.cli.arguments import parse
from specchat.cli.chat import _first_choice
from specchat.cli.offers import find_offers, foresee_offer
from specchat.cli.option_arguments import complete
from specchat.connection.address import parse_address
from specchat.options.declarations import ChatOptions, ScreenOptions
from specchat.settings.sources import settings_path
from specchat.tui.app import ChatApp
from specchat.tui.controllers import idle, titles
from specchat.tui.screens.model_screen import ModelScreen
from specchat.tui.setup import Offer, PairChoice, Setup
from specchat.tui.texts import figure_words
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.fold import Fold
from specchat.tui.widgets.message_views import AnswerView
from tui.driving import (
    frame_text,
    header_text,
    panel_text,
    say,
    screen_text,
    status,
    type_keys,
    until,
)

pytestmark = pytest.mark.anyio
SIZE = (140, 30)
CHAT = "/v1/chat/completions"
ANSWER = "The answer: Paris."


def connect(
    address: str,
    history: Path | None = None,
    options: dict[str, Any] | None = None,
    *,
    titles: bool = False,
    **setup: Any,
) -> ChatApp:
    """Return the chat on a server, which is only asked for titles if that is wanted."""
    server = parse_address(address)
    pair = PairChoice("gpu", f"runs on {server.shown}", server, options or {})
    return ChatApp(Setup(pair, list, history, screen=ScreenOptions(model_titles=titles), **setup))


@asynccontextmanager
async def chat_on(name: str) -> AsyncIterator[tuple[ChatApp, Pilot[None], ScriptedServer]]:
    """Run the chat on a recorded server, and connect."""
    with read_recording(name).server() as server:
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            yield app, pilot, server


def stream(recording: Recording) -> Answer:
    """Return the answer that the chat gets: with figures in each part where there are any."""
    wanted = {"stream_options.include_usage": True}
    lively = (
        {"stream_options.continuous_usage_stats": True},
        {"timings_per_token": True},
        {"return_spec_tokens_details": True},
    )
    answers = [recording.stream(**wanted, **more) for more in lively]
    plain = recording.stream(**wanted)
    return next((each for each in answers if each is not plain), plain)


def said(text: str) -> list[dict[str, Any]]:
    """Return the events of an answer of one word a part, with the usage at its end."""
    parts = re.findall(r"\S+\s*", text)
    events: list[dict[str, Any]] = [{"choices": [{"delta": {"content": each}}]} for each in parts]
    events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    usage = {"prompt_tokens": 9, "completion_tokens": len(parts)}
    return [*events, {"choices": [], "usage": usage}]


def last(app: ChatApp) -> AnswerView:
    """Return the last answer on the screen."""
    view = app.view.transcript.views[-1]
    assert isinstance(view, AnswerView)
    return view


def stored(app: ChatApp) -> Message:
    """Return the last answer as it is kept."""
    (found,) = [app.conversations.branch[-1]]
    return found


def notices(app: ChatApp) -> str:
    """Return the notices that are shown."""
    return "\n".join(each.message for each in app.notices.latest)


def verdict(app: ChatApp) -> str:
    """Return what the panel says of speculation."""
    return figure_words.verdict(app.answers.figures)


def seen(verdicts: set[str], app: ChatApp) -> bool:
    """Keep what the panel says; return True at the end of the answer."""
    verdicts.add(verdict(app))
    return app.answers.current is None


def shown_once(app: ChatApp, words: str) -> bool:
    """Return True if words are on the screen in one place, whatever its line breaks."""
    text = " ".join(re.sub(r"[│▌▐]", " ", screen_text(app)).split())
    return text.count(words) == 1


async def connected(pilot: Pilot[None]) -> ChatApp:
    """Wait until the server has said what it runs."""
    app = pilot.app
    assert isinstance(app, ChatApp)
    await until(pilot, lambda: app.pair_controller.facts is not None)
    return app


async def stopped_halfway(pilot: Pilot[None], app: ChatApp, words: str) -> None:
    """Stop an answer once some words of it are on the screen."""
    await until(pilot, lambda: words in screen_text(app))
    await pilot.press("escape")
    await until(pilot, lambda: app.answers.current is None)


# --- answers and their figures


async def test_reasoning_is_folded_and_the_answer_streams() -> None:
    """As with a model on this machine: what has come is shown while the rest is waited for."""
    recording, gate = read_recording("vllm"), threading.Event()
    with recording.server() as server:
        answer = stream(recording).hold(8, gate)
        server.put("POST", CHAT, answer)
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "What is the capital of France?", wait=False)
            await until(pilot, lambda: "The answer" in screen_text(app))
            assert ANSWER not in screen_text(app)
            gate.set()
            await until(pilot, lambda: app.answers.current is None)
            assert ANSWER in screen_text(app)
            assert "the user wants" not in screen_text(app)
            title = str(last(app).query_one(Fold).query_one(".title", Static).content)
            assert re.fullmatch(r"▸ thought <1 s · 15 tokens", title)
            last(app).arm()
            await pilot.press("space")
            await until(pilot, lambda: "the user wants" in screen_text(app))


async def test_figures_are_those_of_the_server() -> None:
    """In the panel, in the strip, and below the answer."""
    async with chat_on("vllm") as (app, pilot, server):
        await say(pilot, "What is the capital of France?")
        panel, shown = panel_text(app), screen_text(app)
        figures = stored(app).statistics
    assert re.search(r"accepted +62 % of 24 drafted", panel)
    assert re.search(r"tokens per target pass +3\.00", panel)
    assert re.search(r"prompt +15 tokens", panel)
    assert f"vLLM 0.29.0 at {server.address.removeprefix('http://')}" in panel
    assert "does not report what its drafts gain" in " ".join(panel.split())
    assert "24 tokens (15 reasoning)" in shown
    assert (figures["drafted"], figures["accepted"], figures["steps"]) == (24, 15, 8)


@pytest.mark.slow
async def test_drafts_that_come_at_the_end_are_not_denied_before() -> None:
    """What a server has not reported so far may still come; what it gains never does here."""
    recording, gate = read_recording("vllm"), threading.Event()
    with recording.server() as server:
        server.put("POST", CHAT, stream(recording).hold(8, gate))
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "What is the capital of France?", wait=False)
            words = "has not reported any drafts"
            await until(pilot, lambda: words in verdict(app))
            gate.set()
            await until(pilot, lambda: app.answers.current is None)
            assert verdict(app).endswith("does not report what its drafts gain.")


@pytest.mark.slow
async def test_figures_move_while_the_answer_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that report them with each part show them at once."""
    monkeypatch.setattr("specchat.tui.controllers.answers.FIGURES_INTERVAL", 0.0)
    recording, gate = read_recording("llama_server_draft"), threading.Event()
    with recording.server() as server:
        server.put("POST", CHAT, stream(recording).hold(12, gate))
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "Count", wait=False)
            await until(pilot, lambda: "drafted" in panel_text(app))
            early = app.answers.figures.statistics
            assert early.generated_tokens
            before = early.drafted, early.accepted
            assert f"of {before[0]} drafted" in panel_text(app)
            gate.set()
            await until(pilot, lambda: app.answers.current is None)
            assert app.answers.figures.statistics.drafted > before[0]


@pytest.mark.slow
async def test_what_is_not_reported_is_said_to_be_so() -> None:
    """No figure is made up: not in the panel, not in the strip, not in the table of answers."""
    async with chat_on("ollama") as (app, pilot, _):
        await say(pilot, "What is the capital of France?")
        panel = panel_text(app)
        for figure in ("accepted", "tokens per target pass", "draft length"):
            assert re.search(rf"{figure} +not reported", panel), figure
        assert "does not report drafts" in " ".join(panel.split())
        for claim in ("other 1", "cached", "speedup", "target 1", "plain speed"):
            assert claim not in panel.replace("plain speedup", "").lower(), claim
        await pilot.press("f4")
        words = "does not report where its tokens come from"
        await until(pilot, lambda: shown_once(app, words))
        assert "suffix lookup" not in screen_text(app)
        await pilot.press("f3")
        await until(pilot, lambda: "drafts not reported" in screen_text(app))
        await say(pilot, "/stats", wait=False)
        await until(pilot, lambda: "per pass" in screen_text(app))
        (row,) = re.findall(r"│ +1 +(\d+ .*?) +│", screen_text(app))
        cells = row.split()
        assert cells[2:5] == ["-", "-", "-"]
        assert cells[-1] == "-"


@pytest.mark.slow
async def test_figures_of_stored_answers_claim_nothing_new(tmp_path: Path) -> None:
    """Opened again, and on no server: only what the server had reported is shown."""
    history, address = tmp_path / "history.db", ""
    for name in ("ollama", "vllm"):
        with read_recording(name).server() as server:
            address = server.address
            app = connect(address, history)
            async with app.run_test(size=SIZE) as pilot:
                await connected(pilot)
                await say(pilot, f"Question to {name}")
    app = connect(address, history)
    async with app.run_test(size=SIZE) as pilot:
        vllm, ollama = app.conversations.store.conversations()
        await app.actions.conversations.open(ollama.id)
        await until(pilot, lambda: ANSWER in screen_text(app))
        panel = panel_text(app)
        assert re.search(r"accepted +not reported", panel)
        assert re.search(r"draft length +not reported", panel)
        assert "tokens from" not in panel
        assert "does not report drafts" in " ".join(panel.split())
        assert not re.search(r"target +\d", panel)
        await app.actions.conversations.open(vllm.id)
        await until(pilot, lambda: "62 % of 24 drafted" in panel_text(app))
        assert re.search(r"tokens per target pass +3\.00", panel_text(app))
        assert not re.search(r"target +\d", panel_text(app))


@pytest.mark.slow
async def test_a_served_answer_brings_no_advice_for_a_pair_here(tmp_path: Path) -> None:
    """What a server drafted says nothing of the drafts of another model."""
    history = tmp_path / "history.db"
    with read_recording("ollama").server() as server:
        app = connect(server.address, history)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "What is the capital of France?")
    app = chat(Script(), history, other_drafts=lambda _: [Offer("better", "a better draft")])
    async with app.run_test(size=SIZE) as pilot:
        await connected(pilot)
        (conversation,) = app.conversations.store.conversations()
        await app.actions.conversations.open(conversation.id)
        await pilot.pause(0.1)
        assert app.state.adviser.words() == ""
        assert app.state.adviser._drafts == {}


# --- stopping, continuing, other versions


async def test_escape_stops_the_answer_and_the_server_sees_it(tmp_path: Path) -> None:
    """What had come is kept, and the next question works."""
    recording, gate = read_recording("ollama"), threading.Event()
    with recording.server() as server:
        server.put("POST", CHAT, stream(recording).hold(11, gate), stream(recording))
        app = connect(server.address, tmp_path / "history.db")
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "One?", wait=False)
            await stopped_halfway(pilot, app, "The answer")
            server.wait_until_left(CHAT)
            assert (stored(app).finish, stored(app).text) == ("cancelled", "The answer")
            gate.set()
            await say(pilot, "Two?")
            assert stored(app).text == ANSWER
            roles = [each["role"] for each in server.asked(CHAT)[-1].json()["messages"]]
            assert roles == ["user", "assistant", "user"]


@pytest.mark.slow
async def test_a_stopped_answer_is_continued() -> None:
    """Where the server can: it gets the beginning, and one that it repeats is not shown twice."""
    recording, gate = read_recording("lm_studio"), threading.Event()
    with recording.server() as server:
        answer = event_answer(said("One two three four")).hold(2, gate)
        server.put("POST", CHAT, answer, event_answer(said("One two three four five.")))
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "Count", wait=False)
            await stopped_halfway(pilot, app, "One two")
            await pilot.press("ctrl+g")
            await until(pilot, lambda: stored(app).finish == "stop")
            sent = server.asked(CHAT)[-1].json()["messages"]
            assert sent[-1] == {"role": "assistant", "content": "One two "}
            assert stored(app).text == "One two three four five."
            assert re.search(r"accepted +not reported", panel_text(app))


@pytest.mark.slow
async def test_figures_of_a_continued_answer_are_those_of_both_parts() -> None:
    """Drafts that were reported of one part alone say nothing of the whole."""
    recording, gate = read_recording("vllm"), threading.Event()
    with recording.server() as server:
        server.put("POST", CHAT, stream(recording).hold(8, gate), stream(recording))
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "What is the capital of France?", wait=False)
            await stopped_halfway(pilot, app, "The answer")
            await pilot.press("ctrl+g")
            await until(pilot, lambda: stored(app).finish == "stop")
            panel, figures = panel_text(app), stored(app).statistics
    assert figures["generated_tokens"] == 20 + 24
    assert "drafted" not in figures
    for figure in ("accepted", "tokens per target pass", "draft length"):
        assert re.search(rf"{figure} +not reported", panel), figure


@pytest.mark.slow
async def test_an_answer_that_cannot_be_continued_stays_as_it_was() -> None:
    """A server of an unknown kind has no way to do so: the reason is one line below it."""
    gate = threading.Event()
    with ScriptedServer() as server:
        server.put("GET", "/v1/models", json_answer({"data": [{"id": "m"}]}))
        server.put("POST", CHAT, event_answer(said("One two three")).hold(2, gate))
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "Count", wait=False)
            await stopped_halfway(pilot, app, "One two")
            await pilot.press("ctrl+g")
            await until(pilot, lambda: "cannot continue an answer" in screen_text(app))
            assert stored(app).text == "One two "
            assert stored(app).finish == "cancelled"
        gate.set()


@pytest.mark.slow
async def test_versions_and_edits_are_asked_with_the_branch_before_them() -> None:
    """F5 asks again; an edited question is a branch of its own."""
    with ScriptedServer() as server:
        server.put("GET", "/v1/models", json_answer({"data": [{"id": "m"}]}))
        answers = [event_answer(said(each)) for each in ("first", "second", "third")]
        server.put("POST", CHAT, *answers)
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "Tell me")
            await pilot.press("f5")
            await until(pilot, lambda: app.answers.current is None and "second" in screen_text(app))
            assert "2/2" in screen_text(app)
            app.view.transcript.views[0].arm()
            await pilot.press("e")
            await until(pilot, lambda: app.state.questions.editing is not None)
            app.query_one(Composer).text = "Tell me more"
            await type_keys(pilot, "enter")
            await until(pilot, lambda: app.answers.current is None and "third" in screen_text(app))
            asked = [each.json()["messages"] for each in server.asked(CHAT)]
    assert [len(each) for each in asked] == [1, 1, 1]
    assert asked[-1][0]["content"] == "Tell me more"


@pytest.mark.slow
async def test_a_named_file_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With @, as to a model on this machine."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("The cat is called Ada.", "utf-8")
    async with chat_on("ollama") as (_, pilot, server):
        await say(pilot, "Who is it? @notes.txt")
        (sent,) = server.asked(CHAT)[-1].json()["messages"]
    assert "The cat is called Ada." in sent["content"]


@pytest.mark.slow
async def test_options_are_asked_for_in_the_words_of_the_server() -> None:
    """Reasoning, a schema, a preset: the frame shows what holds from the next answer."""
    preset = Preset("terse", "Be brief.", {"temperature": 0.25, "repeat_penalty": 1.1}, "")
    async with chat_on("vllm") as (app, pilot, server):
        app.actions.conversations.use_preset(preset)
        await until(pilot, lambda: "temperature 0.25" in frame_text(app))
        await say(pilot, "/think off")
        await until(pilot, lambda: "thinking off" in frame_text(app))
        await say(pilot, "/schema city, population int")
        await until(pilot, lambda: "schema" in frame_text(app))
        await say(pilot, "What is the capital of France?")
        sent = server.asked(CHAT)[-1].json()
    assert sent["chat_template_kwargs"]["enable_thinking"] is False
    assert (sent["temperature"], sent["repetition_penalty"]) == (0.25, 1.1)
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    schema = sent["response_format"]["json_schema"]["schema"]
    assert set(schema["properties"]) == {"city", "population"}


# --- servers that fail


async def test_a_server_that_dies_keeps_what_it_had_written(tmp_path: Path) -> None:
    """One line says so below the answer; the next question works once it is back."""
    recording = read_recording("ollama")
    with recording.server() as server:
        whole = stream(recording)
        server.put("POST", CHAT, whole.cut(11), text_answer("x", 500), whole)
        app = connect(server.address, tmp_path / "history.db")
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "One?")
            where = server.address.removeprefix("http://")
            assert shown_once(app, f"{where} ended the answer early")
            assert (stored(app).finish, stored(app).text) == ("failed", "The answer")
            await say(pilot, "Two?")
            assert shown_once(app, f"{where} failed with status 500: x; see the server's log")
            assert stored(app).finish == "failed"
            await say(pilot, "Three?")
            assert (stored(app).finish, stored(app).text) == ("stop", ANSWER)


@pytest.mark.slow
async def test_a_server_that_comes_back_may_run_another_model() -> None:
    """After a failure, the next question connects again: name and context are the new ones."""
    recording = read_recording("vllm")
    with recording.server() as server:
        server.put("POST", CHAT, *recording.named["wrong_model"].answers, stream(recording))
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            new = [{"id": "qwen3-32b", "owned_by": "vllm", "max_model_len": 4096}]
            server.put("GET", "/v1/models", json_answer({"data": new}))
            await say(pilot, "One?")
            assert shown_once(app, "does not know this model")
            await say(pilot, "Two?")
            assert stored(app).text.strip() == ANSWER
            assert "4096" in header_text(app)
            assert [each.json()["model"] for each in server.asked(CHAT)] == [
                "qwen3-8b",
                "qwen3-32b",
            ]


@pytest.mark.slow
async def test_a_server_that_is_gone_at_first_is_connected_to_later() -> None:
    """One line at the start; the next question tries again, and says no more than it must."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app = connect(f"http://127.0.0.1:{port}")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "cannot be reached" in status(app))
        assert shown_once(app, f"127.0.0.1:{port} cannot be reached (connection refused)")
        assert "The next question or Ctrl+R connects again" in status(app)
        assert "not connected" in screen_text(app)
        with read_recording("ollama").server() as server:
            # the address was free a moment ago; the chat is led to where the server is now
            source = parse_address(server.address)
            app.pair_controller.pair = PairChoice("gpu", "", source)
            await say(pilot, "Are you there?")
            assert stored(app).text == ANSWER
            assert "cannot be reached" not in status(app)


@pytest.mark.slow
async def test_a_server_that_says_nothing_is_waited_for_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the seconds; a question can be stopped meanwhile, and the chat closed at once."""
    monkeypatch.setattr("specchat.network.web_client.ON_WAIT_SECONDS", 0.01)
    clock = count(1)
    monkeypatch.setattr(
        "specchat.tui.controllers.pair_controller.waited", lambda _: f" · {next(clock)} s"
    )
    with ScriptedServer() as server:
        server.put("GET", "/v1/models", Answer(ending="stall"))
        where = server.address.removeprefix("http://")
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await until(pilot, lambda: f"waiting for {where} · " in status(app))
            assert "connecting…" in screen_text(app)
            await say(pilot, "Are you there?", wait=False)
            await until(pilot, lambda: app.answers.current is not None)
            await pilot.press("escape")
            await until(pilot, lambda: app.answers.current is None)
            assert stored(app).finish == "cancelled"
            await until(pilot, lambda: f"waiting for {where} · " in status(app))
        server.wait_until_left("/v1/models")


@pytest.mark.slow
async def test_a_question_to_a_server_that_is_gone_fails_in_one_line() -> None:
    """The reason is below the answer, and the status line says how to go on."""
    recording = read_recording("ollama")
    with recording.server() as server:
        server.put("POST", CHAT, replace(stream(recording), ending="stale"))
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "Are you there?")
            server.__exit__(None, None, None)
            await say(pilot, "And now?")
            where = server.address.removeprefix("http://")
            assert shown_once(app, f"{where} cannot be reached (connection refused)")
            assert stored(app).finish == "failed"
            assert app.pair_controller.facts is not None


@pytest.mark.slow
async def test_a_conversation_that_does_not_fit_is_one_line() -> None:
    """With what the user can do about it."""
    recording = read_recording("vllm")
    with recording.server() as server:
        server.put("POST", CHAT, *recording.named["too_long"].answers)
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "word " * 500)
            text = " ".join(screen_text(app).split())
            assert "does not fit the server's context" in text
            assert "starts a new chat" in text


# --- commands


async def test_what_needs_the_model_here_is_refused_in_words() -> None:
    """Steps, races and serving each say why; no request is made."""
    async with chat_on("vllm") as (app, pilot, server):
        await say(pilot, "What is the capital of France?")
        await pilot.press("f6")
        await until(pilot, lambda: "wrote this answer" in notices(app))
        assert notices(app).startswith("vLLM at 127.0.0.1:")
        assert "only its text and figures" in notices(app)
        await pilot.press("f7")
        await until(pilot, lambda: "A race needs a model on this machine" in notices(app))
        await say(pilot, "/serve", wait=False)
        await until(pilot, lambda: "runs the model" in notices(app))
        assert not app.state.serving.is_open
        await say(pilot, "/unload", wait=False)
        await until(pilot, lambda: app.pair_controller.is_unloaded)
        assert len(server.asked(CHAT)) == 1


@pytest.mark.slow
async def test_an_unknown_context_is_not_guessed() -> None:
    """/context says so; the header, the start screen and the message's size leave it out."""
    with ScriptedServer() as server:
        server.put("GET", "/v1/models", json_answer({"data": [{"id": "m" * 190}]}))
        server.put("POST", CHAT, event_answer(said("Hello.")))
        app = connect(server.address)
        async with app.run_test(size=(80, 24)) as pilot:
            await connected(pilot)
            await until(pilot, lambda: bool(re.search(r"context +not reported", screen_text(app))))
            await say(pilot, "Hello")
            await say(pilot, "/context", wait=False)
            await until(pilot, lambda: "does not report the size of its context" in notices(app))
            assert "context" not in header_text(app)
            app.query_one(Composer).text = "word " * 20_000
            await until(pilot, lambda: "~25000 tokens" in frame_text(app))
            assert "too long" not in frame_text(app)


HOSTILE = "[red]evil[/red]\x1b[2J\x07\u202e " + "m" * 150


@pytest.mark.slow
async def test_names_of_a_server_are_text() -> None:
    """Whatever a server calls its models: no markup, no control characters, no second line."""
    with ScriptedServer() as server:
        listed = [{"id": HOSTILE, "owned_by": "vllm", "max_model_len": 64}]
        server.put("GET", "/v1/models", json_answer({"data": listed}))
        server.put("GET", "/version", json_answer({"version": HOSTILE}))
        server.put("POST", CHAT, event_answer(said("Hello.")))
        app = connect(server.address)
        async with app.run_test(size=(80, 24)) as pilot:
            await connected(pilot)
            await until(pilot, lambda: "target   [red]evil[/red]" in screen_text(app))
            await say(pilot, "Hello")
            assert stored(app).text == "Hello."
            for keys in (("f3",), ("f3", "f7"), ("f8",)):
                await pilot.press(*keys)
                await pilot.pause()
                assert not set("\x1b\x07\u202e") & set(screen_text(app))
            assert server.asked(CHAT)[-1].json()["model"] == HOSTILE


@pytest.mark.slow
@pytest.mark.parametrize("where", ["drafter", "speculation_off_reason", "draft_off_reason"])
async def test_reasons_of_a_server_are_text(where: str) -> None:
    """What a server says of its drafts is no markup and no control characters either."""
    own = {"drafter": "none", where: HOSTILE, "notices": [HOSTILE], "speedup": 1e308}
    events = said("Hello there.")
    events[-1] |= {"specchat": own, "timings": {"predicted_n": 2, "draft_n": 4}}
    with ScriptedServer() as server:
        server.put(
            "GET", "/v1/models", json_answer({"data": [{"id": "m", "owned_by": "specchat"}]})
        )
        server.put("POST", CHAT, event_answer(events))
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "Hello")
            await until(pilot, lambda: "[red]evil[/red]" in screen_text(app))
            for key in ("f3", "/stats"):
                await (say(pilot, key, wait=False) if key.startswith("/") else pilot.press(key))
                await pilot.pause()
                assert not set("\x1b\x07\u202e") & set(screen_text(app))


@pytest.mark.slow
async def test_an_answer_that_comes_at_once_has_no_speed() -> None:
    """Some servers do not stream: nothing says how long its tokens took."""
    whole = {
        "choices": [{"message": {"content": "All of it."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 5},
    }
    with ScriptedServer() as server:
        server.put("GET", "/v1/models", json_answer({"data": [{"id": "m"}]}))
        server.put("POST", CHAT, json_answer(whole))
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "Hello")
            panel = panel_text(app)
            assert re.search(r"tokens per second +not reported", panel)
            assert "OpenAI-compatible server at" in " ".join(panel.split())
            await pilot.press("f3")
            await until(pilot, lambda: "drafts not reported" in screen_text(app))
            assert "tokens/s" not in screen_text(app)
            assert stored(app).text == "All of it."


@pytest.mark.slow
async def test_the_server_writes_titles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once nothing else is asked for, without reasoning."""
    monkeypatch.setattr(titles, "QUIET_SECONDS", 0.05)
    with read_recording("vllm").server() as server:
        server.put("POST", CHAT, event_answer(said("Paris it is.")), event_answer(said("A Title")))
        app = connect(server.address, titles=True)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "What is the capital of France?")
            await until(pilot, lambda: header_text(app).startswith("A Title"))
            sent = server.asked(CHAT)[-1].json()
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}
    assert sent["max_tokens"] < 100


@pytest.mark.slow
async def test_unload_and_restart_mean_the_connection() -> None:
    """Nothing is said of memory, which is that of the server."""
    with read_recording("ollama").server() as server:
        where = server.address.removeprefix("http://")
        app = connect(server.address)
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await say(pilot, "/unload", wait=False)
            words = f"Disconnected: {where} keeps its model. The next question connects again."
            await until(pilot, lambda: words in status(app))
            assert "disconnected" in header_text(app)
            assert "not connected" in screen_text(app)
            await say(pilot, "/unload", wait=False)
            await until(pilot, lambda: "Not connected." in notices(app))
            await say(pilot, "Are you there?")
            assert stored(app).text == ANSWER
            await pilot.press("ctrl+r")
            await connected(pilot)
            assert len(server.asked("/v1/models")) == 3


@pytest.mark.slow
async def test_an_idle_connection_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no memory here to be freed."""
    monkeypatch.setattr(idle, "POLL_SECONDS", 0.01)
    with read_recording("ollama").server() as server:
        app = connect(server.address, chat=ChatOptions(unload_after=1))
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            app.state.idle._idle_since = app.pair_controller.asked_at = -1000.0
            await pilot.pause(0.1)
            assert app.pair_controller.session is not None


# --- the models screen


def from_words(*words: str) -> ChatApp:
    """Return the chat that the command line opens, with a scripted engine for pairs."""
    arguments = parse(["chat", *words])
    complete(arguments)
    return ChatApp(
        Setup(
            _first_choice(arguments),
            lambda: find_offers(arguments),
            None,
            foresee=foresee_offer,
            keys=arguments.settings.key_bindings,
        ),
        Script().load,
    )


@dataclass
class Config:
    """A settings file of the test's own."""

    path: Path

    def write(self, text: str) -> None:
        """Write it."""
        self.path.write_text(text, "utf-8")

    def read(self) -> str:
        """Return what it says."""
        return self.path.read_text("utf-8")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Return the settings file, which is not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings_path().parent.mkdir(parents=True, exist_ok=True)
    return Config(settings_path())


async def models(pilot: Pilot[None], words: str) -> str:
    """Open the models screen and look for words; return what is shown once one is found."""
    app = pilot.app
    await pilot.press("f8")
    await until(pilot, lambda: isinstance(app.screen, ModelScreen))
    await until(pilot, lambda: "Looking for models" not in screen_text(app))
    await type_keys(pilot, *words)
    found = app.screen.query_one(OptionList)
    await until(pilot, lambda: found.highlighted_option is not None)
    await until(pilot, lambda: words in str(found.highlighted_option.prompt))  # type: ignore[union-attr]
    await pilot.pause()
    return screen_text(app)


@pytest.mark.slow
async def test_servers_of_the_settings_are_models_to_switch_to(config: Config) -> None:
    """They have a group of their own; ^d makes one the default, Enter switches to it."""
    with read_recording("vllm").server() as one, read_recording("ollama").server() as other:
        config.write(
            f"[model]\npair = 'demo'\n[servers.gpu-box]\nurl = '{one.address}'\n"
            f"model = 'qwen3-8b'\n[servers.laptop]\nurl = '{other.address}'\n"
        )
        app = from_words("--connect", "gpu-box")
        async with app.run_test(size=(120, 40)) as pilot:
            await connected(pilot)
            shown = await models(pilot, "laptop")
            assert "Servers" in shown
            assert f"Runs on {other.address.removeprefix('http://')}" in shown
            assert "Drafts come from the server" in shown
            assert "Reading the file" not in shown
            await pilot.press("ctrl+d")
            await until(pilot, lambda: "now starts with laptop" in notices(app))
            text = config.read()
            assert 'connect = "laptop"' in text
            assert not re.search(r"^pair", text, re.MULTILINE)
            await pilot.press("enter")
            await until(pilot, lambda: "laptop" in header_text(app))
            facts = (await connected(pilot)).pair_controller.facts
            assert facts is not None
            assert facts.target == "qwen3:8b"
            await say(pilot, "What is the capital of France?")
            assert ANSWER in screen_text(app)
            assert other.asked(CHAT)
            assert not one.asked(CHAT)
    assert from_words().setup.pair.name == "laptop"


@pytest.mark.slow
async def test_a_server_by_its_address_is_listed_and_can_be_the_default(config: Config) -> None:
    """With the model that was chosen; another default drops both."""
    with read_recording("lm_studio").server() as server:
        model = "google/gemma-4-26b-a4b"
        app = from_words("--connect", f"{server.address}/v1", "--served-model", model)
        where = server.address.removeprefix("http://")
        async with app.run_test(size=(120, 40)) as pilot:
            await connected(pilot)
            shown = await models(pilot, where)
            assert f"{model} · in use" in shown
            assert f"Runs on {where}" in shown
            await pilot.press("ctrl+d")
            await until(pilot, lambda: f"now starts with {where}" in notices(app))
            text = config.read()
            assert f'connect = "{server.address}"' in text
            assert f'served_model = "{model}"' in text
        again = from_words().setup.pair
        assert again.server == app.setup.pair.server


@pytest.mark.slow
@pytest.mark.usefixtures("config")
async def test_a_pair_on_this_machine_is_switched_to_from_a_server() -> None:
    """And back."""
    with read_recording("vllm").server() as server:
        app = from_words("--connect", server.address)
        where = server.address.removeprefix("http://")
        async with app.run_test(size=SIZE) as pilot:
            await connected(pilot)
            await models(pilot, "demo")
            await pilot.press("enter")
            await until(pilot, lambda: app.pair_controller.pair.name == "demo")
            await connected(pilot)
            assert "weights" in panel_text(app)
            await models(pilot, where)
            await pilot.press("enter")
            await until(pilot, lambda: app.pair_controller.pair.name == where)
            await connected(pilot)


@pytest.mark.slow
async def test_a_server_that_may_not_be_used_is_not_switched_to(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One notice says why, and the model in use stays."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with read_recording("vllm").server() as server:
        config.write(
            f"[servers.gpu]\nurl = '{server.address}'\nkey_file = 'missing.key'\n"
            "[servers.far]\nurl = 'http://10.0.0.2:8000'\n"
        )
        app = from_words("--connect", server.address)
        where = server.address.removeprefix("http://")
        async with app.run_test(size=(120, 40)) as pilot:
            await connected(pilot)
            for name, words in (("gpu", "missing.key cannot be read"), ("far", "--offline is set")):
                await models(pilot, name)
                await pilot.press("enter")
                await until(pilot, lambda words=words: words in notices(app))  # type: ignore[misc]
                assert app.pair_controller.pair.name == where
                assert app.pair_controller.session is not None


# --- specchat serve


@pytest.fixture(scope="module")
def serve(start_here: StartServer) -> Running:  # noqa: F811  # the fixture
    """Return `specchat serve` with the demo pair."""
    return start_here()


@pytest.mark.slow
async def test_specchat_serve_reports_all_that_a_chat_shows(serve: Running) -> None:
    """Live figures, drafts and their gain."""
    options = {"max_tokens": 60, "temperature": 0.0, "draft_length": 4}
    app = connect(serve.address, options=options)
    async with app.run_test(size=SIZE) as pilot:
        await connected(pilot)
        await until(pilot, lambda: "draft" in screen_text(app))
        verdicts = set[str]()
        await say(pilot, "What is specchat?", wait=False)
        await until(pilot, lambda: seen(verdicts, app))
        assert not any("not report" in each for each in verdicts)
        figures, record = app.answers.figures, stored(app).statistics
        assert record["drafted"] > 0
        assert f"of {record['drafted']} drafted" in panel_text(app)
        await until(pilot, lambda: f"{record['generated_tokens']} tokens" in screen_text(app))
        assert figures.statistics.cached_tokens <= figures.statistics.prompt_tokens
        assert "drafter" in record
        assert "context" in header_text(app)
        assert "thinking" not in frame_text(app)
        await say(pilot, "/think", wait=False)
        await until(pilot, lambda: "has no reasoning to switch" in screen_text(app))


@pytest.mark.slow
async def test_two_chats_use_one_server_at_once(serve: Running, tmp_path: Path) -> None:
    """Each gets its own answer."""
    first = connect(serve.address, tmp_path / "one.db", {"max_tokens": 400, "temperature": 0.0})
    second = connect(serve.address, tmp_path / "two.db", {"max_tokens": 20, "temperature": 0.0})
    async with first.run_test(size=SIZE) as pilot:
        await connected(pilot)
        async with second.run_test(size=SIZE) as other:
            await connected(other)
            await say(pilot, "What is speculative decoding?", wait=False)
            await say(other, "What is specchat?")
            await until(pilot, lambda: first.answers.current is None)
            texts = stored(first).text, stored(second).text
    assert all(texts)
    assert texts[0] != texts[1]
