"""Images in requests to all APIs: read as the engine reads them, or refused in a sentence."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from PIL import Image as Pillow

from conftest import WriteModel
from connection.scripted_server import ScriptedServer
from image_files import encoded, picture
from scripts.support.server_fuzz import fuzz, image_cases
from scripts.support.tiny_gguf import write_projector
from server.conftest import Running, StartServer, until
from specchat import Image
from specchat.connection.address import parse_address
from specchat.connection.connected_engine import ConnectedEngine
from specchat.errors import InvalidOption, ModelWontLoad, SpecchatError
from specchat.images.picture import Picture, picture_of
from specchat.images.text_only import text_only
from specchat.requests.answer_request import ChatRequest, GenerateRequest
from specchat.server.client_setups import served_at, setup_text
from specchat.server.replies import LOG
from specchat.system.logs import log_size
from tables import table

pytestmark = pytest.mark.usefixtures("image_library")
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 8}
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
USER_ONLY = """{% for message in messages %}{% if message.role == 'user' %}<|im_start|>user
{{ message.content }}<|im_end|>
{% endif %}{% endfor %}<|im_start|>assistant
"""
"""A template that shows what the user said, and nothing else."""


def base64(data: bytes) -> str:
    """Return bytes as base64."""
    return b64encode(data).decode()


CAT, DOG = (base64(encoded(picture(seed, (64, 64)))) for seed in (1, 2))


def url(data: str, kind: str = "image/png") -> str:
    """Return a data: URL."""
    return f"data:{kind};base64,{data}"


def text(words: str = "What is this?") -> dict[str, Any]:
    """Return a part with text."""
    return {"type": "text", "text": words}


def part(data: str) -> dict[str, Any]:
    """Return an image as the chat API has it."""
    return {"type": "image_url", "image_url": {"url": data}}


def said(*parts: Any, role: str = "user") -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": [*parts]}


def chat(*parts: Any, **fields: Any) -> dict[str, Any]:
    """Return a request to the chat API."""
    return {"messages": [said(*parts)], **GREEDY, **fields}


@pytest.fixture(scope="module")
def answer(seer: Running) -> dict[str, Any]:
    """Return the answer to a question about an image, in the usual form."""
    return seer.posted(CHAT, chat(part(url(CAT)), text(), seed=1))


def test_models_say_what_they_read(seer: Running, demo_server: Running) -> None:
    """Each name of the pair, and the answers to llama-server's clients."""
    for server, kinds in ((seer, ["text", "image"]), (demo_server, ["text"])):
        for model in server.client.get("/v1/models").json()["data"]:
            assert model["architecture"]["input_modalities"] == kinds
        assert server.client.get("/props").json()["modalities"]["vision"] == (len(kinds) == 2)


@table(
    ("path", "body"),
    [
        (CHAT, chat(part(CAT), text())),
        (CHAT, chat({"type": "image_url", "image_url": url(CAT)}, text())),
        (CHAT, chat(part(url(CAT, "IMAGE/WEBP;name=a")), text())),
        (CHAT, chat(part(url("\n".join([CAT[:76], CAT[76:]]))), text())),
        (CHAT, chat({"type": "input_image", "image_url": url(CAT)}, text())),
        (
            RESPONSES,
            {
                "input": [
                    said(
                        {"type": "input_image", "image_url": url(CAT), "detail": "low"},
                        {"type": "input_text", "text": "What is this?"},
                    )
                ],
                "temperature": 0,
                "max_output_tokens": 8,
            },
        ),
        (
            MESSAGES,
            chat(
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": CAT},
                },
                text(),
            ),
        ),
        (MESSAGES, chat({"type": "image", "source": {"type": "url", "url": url(CAT)}}, text())),
    ],
)
def test_every_form_of_an_image_is_the_same_image(
    seer: Running, answer: dict[str, Any], path: str, body: dict[str, Any]
) -> None:
    """The prompt has the same tokens, and so the answer the same text."""
    reply = seer.posted(path, body)
    assert json.dumps(answer["choices"][0]["message"]["content"]) in json.dumps(reply)
    details = [reply["usage"].get(name) for name in ("prompt_tokens", "input_tokens")]
    if path != MESSAGES:
        assert answer["usage"]["prompt_tokens"] in details


def test_usage_counts_images_apart(seer: Running, answer: dict[str, Any]) -> None:
    """Whole and streamed, by all who count tokens; the second time it comes from the cache."""
    usage = answer["usage"]
    assert usage["prompt_tokens_details"]["image_tokens"] == 64 < usage["prompt_tokens"]
    assert answer["specchat"]["image_tokens"] == 64
    body = chat(part(url(CAT)), text())
    again = seer.posted(CHAT, body)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1
    assert again["specchat"]["image_s"] == 0
    counts = [
        seer.posted(f"{path}/{name}", asked)["input_tokens"]
        for path, name, asked in (
            (CHAT, "input_tokens", body),
            (MESSAGES, "count_tokens", body),
            (RESPONSES, "input_tokens", {"input": body["messages"]}),
        )
    ]
    assert counts == [usage["prompt_tokens"]] * 3
    rendered = seer.posted("/apply-template", body)
    assert "[image]What is this?" in rendered["prompt"]
    assert rendered["tokens"] == seer.posted("/tokenize", body)["tokens"]
    pieces = seer.posted("/tokenize", {**body, "with_pieces": True})["tokens"]
    assert [each["piece"] for each in pieces].count("[image]") == 1


def test_the_next_turn_reads_neither_image_nor_text_again(seer: Running) -> None:
    """A conversation about two images goes on, as clients send it: whole."""
    messages: list[Any] = [said(part(url(CAT)), part(url(DOG)), text("Which is larger?"))]
    first = seer.posted(CHAT, {"messages": messages, **GREEDY})
    reply = first["choices"][0]["message"]["content"]
    messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": "Why?"}]
    second = seer.posted(CHAT, {"messages": messages, **GREEDY})
    details = second["usage"]["prompt_tokens_details"]
    assert details["image_tokens"] == 128
    assert details["cached_tokens"] >= first["usage"]["prompt_tokens"] - 1
    swapped = [said(part(url(DOG)), part(url(CAT)), text("Which is larger?"))]
    third = seer.posted(CHAT, {"messages": swapped, **GREEDY})
    assert third["usage"]["prompt_tokens_details"]["cached_tokens"] < 64


def test_a_stream_about_an_image_is_the_whole_reply(seer: Running, answer: dict[str, Any]) -> None:
    """With tools beside it, too, which are described before it."""
    with seer.client.stream("POST", CHAT, json=chat(part(url(CAT)), text(), stream=True)) as reply:
        lines = [line[6:] for line in reply.iter_lines() if line.startswith("data: {")]
    deltas = [json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines]
    assert "".join(deltas) == answer["choices"][0]["message"]["content"]
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    found = seer.posted(
        CHAT, chat(part(url(CAT)), text(), tools=[tool], tool_choice="required", max_tokens=200)
    )
    assert found["usage"]["prompt_tokens_details"]["image_tokens"] == 64


def test_images_of_several_clients_at_once(seer: Running) -> None:
    """Each gets the answer it gets alone."""
    bodies = [
        chat(part(url(base64(encoded(picture(seed, (80, 80)))))), text(), max_tokens=40)
        for seed in range(20, 26)
    ]
    together: list[Any] = [None] * len(bodies)

    def ask(number: int) -> None:
        together[number] = seer.posted(CHAT, bodies[number])["choices"][0]["message"]["content"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = [seer.posted(CHAT, each)["choices"][0]["message"]["content"] for each in bodies]
    assert together == alone


def test_a_client_that_leaves_ends_its_answer(seer: Running) -> None:
    """The next one is served."""
    with seer.client.stream(
        "POST",
        CHAT,
        json=chat(part(url(DOG)), text(), stream=True, max_tokens=900, ignore_eos=True),
    ) as reply:
        next(reply.iter_lines())
    until(lambda: not seer.service.activity.live(), "the end of the answer")
    seer.posted(CHAT, chat(part(url(DOG)), text()))


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_any_message_may_have_an_image(seer: Running, role: str) -> None:
    """Where the template shows what the message says."""
    messages = [said(part(url(CAT)), text("Look."), role=role), said(text())]
    found = seer.posted(CHAT, {"messages": messages, **GREEDY})
    assert found["usage"]["prompt_tokens_details"]["image_tokens"] == 64


def results(content: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return a conversation in which a tool returns something, by each API."""
    used = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": content}
    output = {"type": "function_call_output", "call_id": "c1", "output": content}
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    messages = [
        said(text()),
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": content},
    ]
    return [
        (CHAT, {"messages": messages}),
        (MESSAGES, {"messages": [said(text()), said(used, role="assistant"), said(result)]}),
        (RESPONSES, {"input": [said(text()), call, output]}),
    ]


def prompt_of(server: Running, path: str, body: dict[str, Any]) -> str:
    """Return the prompt of a conversation, as the model gets it."""
    from specchat.server.chat_body import ChatBody, chat_requests
    from specchat.server.messages_api import MessagesBody
    from specchat.server.messages_api import to_chat as of_messages
    from specchat.server.responses_api import ResponsesBody
    from specchat.server.responses_api import to_chat as of_responses

    if path == CHAT:
        asked = ChatBody(**body)
    elif path == MESSAGES:
        asked = of_messages(MessagesBody(**body, max_tokens=8))
    else:
        asked = of_responses(ResponsesBody(**body))
    (request, *_), _ = chat_requests(asked, server.service)
    said = "\n".join(str(message["content"]) for message in request.messages)
    for number, image in enumerate(request.images, 1):
        said = said.replace(image.mark, f"<{number}: {len(image.data)}>")
    return said


def test_a_tool_may_return_an_image(seer: Running) -> None:
    """By each API; one that failed says so before it."""
    size = len(encoded(picture(1, (64, 64))))
    for path, body in results([text("Here:"), part(url(CAT))]):
        assert prompt_of(seer, path, body).endswith(f"Here:<1: {size}>"), path
        fields = {"max_output_tokens": 8} if path == RESPONSES else {"max_tokens": 8}
        assert seer.posted(path, {**body, **fields})["usage"]
    failed = results([part(url(CAT))])[1]
    failed[1]["messages"][-1]["content"][0]["is_error"] = True
    assert prompt_of(seer, *failed).endswith(f"Error: <1: {size}>")


def test_what_a_tool_returns_never_ends_the_conversation(
    seer: Running, demo_server: Running
) -> None:
    """The model learns what it cannot see, and why."""
    for path, body in results([text("Here:"), part("https://example.com/a.png")]):
        assert "Here:\n[image 1 is at an address (https:)" in prompt_of(seer, path, body)
        assert prompt_of(demo_server, path, body).endswith(
            "[image_url: this model reads text only]"
        )


def test_an_image_that_the_template_does_not_show_is_refused(
    start_seer: Callable[..., Running],
) -> None:
    """It would be left out silently, and the error names the role."""
    server = start_seer(chat_template=USER_ONLY)
    messages = [said(text()), said(part(url(CAT)), role="assistant"), said(text())]
    reply = server.client.post(CHAT, json={"messages": messages})
    assert reply.status_code == 400
    assert "image 1 is in a message of the role assistant" in reply.json()["error"]["message"]
    assert reply.json()["error"]["param"] == "messages"


BROKEN = encoded(picture(1))[:200]
HUGE = encoded(Pillow.new("L", (9000, 9000)))


@table(
    ("given", "words"),
    [
        ("http://127.0.0.1:1/a.png", "image 1 is at an address (http:)"),
        ("https://example.com/a.png", "image 1 is at an address (https:)"),
        ("file:///etc/passwd", "image 1 is at an address (file:)"),
        (" FILE:///etc/passwd", "image 1 is at an address (FILE:)"),
        ("data:image/png,abc", "image 1 is not in base64"),
        ("data:image/png;base64", "image 1 is not in base64"),
        ("data:image/png;base64,", "image 1 is not an image specchat reads"),
        ("data:image/png;base64,%%%%", "image 1 is not valid base64"),
        ("", "image 1 has no data"),
        (None, "image 1 has no data"),
        (7, "image 1 has no data"),
        (["x"], "image 1 has no data"),
        (base64(b"no image"), "image 1 is not an image specchat reads (PNG, JPEG, WebP, GIF)"),
        (base64(BROKEN), "image 1 is damaged or cut off"),
        (base64(HUGE), "image 1 is too large: 9000 by 9000 pixels"),
        (base64(bytes(21 * 2**20)), "image 1 is too large: more than 20 MiB"),
    ],
)
def test_what_is_no_image_is_refused_by_every_api(seer: Running, given: Any, words: str) -> None:
    """In one line, with status 400 and the field that the client sent."""
    source = {"type": "base64", "data": given}
    if isinstance(given, str) and ":" in given:
        source = {"type": "url", "url": given}
    bodies = {
        CHAT: chat(part(given), text()),
        RESPONSES: {"input": [said({"type": "input_image", "image_url": given}, text())]},
        MESSAGES: chat({"type": "image", "source": source}, text()),
    }
    for path, body in bodies.items():
        for asked in (path, f"{path}/{'count_tokens' if path == MESSAGES else 'input_tokens'}"):
            reply = seer.client.post(asked, json=body)
            error = reply.json()["error"]
            assert reply.status_code == 400, reply.text
            assert words in error["message"]
            assert "\n" not in error["message"]
            if path != MESSAGES:
                assert error["param"] == ("input" if path == RESPONSES else "messages")


def odd_pictures() -> dict[str, bytes]:
    """Return pictures of unusual sizes, colours and formats."""
    frames = [picture(seed) for seed in (3, 4, 5)]
    small = picture(6, (32, 24))
    return {
        "one dot": encoded(picture(1, (1, 1))),
        "a line": encoded(picture(1, (4000, 1))),
        "a column": encoded(picture(1, (1, 4000))),
        "moving": encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "moving png": encoded(frames[0], "PNG", save_all=True, append_images=frames[1:]),
        "for printing": encoded(picture(2).convert("CMYK"), "JPEG"),
        "of few colours": encoded(picture(2).convert("P")),
        "of grey": encoded(picture(2).convert("L")),
        "of two colours": encoded(picture(2).convert("1")),
        "of 16 bits": encoded(picture(2).convert("I;16")),
        "half transparent": encoded(picture(2).convert("LA")),
        "webp": encoded(small, "WEBP"),
    }


@pytest.mark.parametrize("name", odd_pictures())
def test_odd_pictures_get_an_answer(seer: Running, name: str) -> None:
    """Whatever their form, they take the tokens of the model's images."""
    found = seer.posted(CHAT, chat(part(url(base64(odd_pictures()[name]))), text()))
    assert found["usage"]["prompt_tokens_details"]["image_tokens"] == 64


def test_a_model_without_a_projector_says_what_to_do(demo_server: Running) -> None:
    """By its name; a client cannot do it, but tell who runs the server."""
    for path, body in (
        (CHAT, chat(part(url(CAT)))),
        (MESSAGES, chat({"type": "image", "source": {"type": "base64", "data": CAT}})),
        (RESPONSES, {"input": [said({"type": "input_image", "image_url": url(CAT)})]}),
    ):
        reply = demo_server.client.post(path, json=body)
        assert reply.status_code == 400
        message = reply.json()["error"]["message"]
        assert text_only("demo", advises=True) in message


def test_too_many_images_are_refused(seer: Running) -> None:
    """Those beyond the context with its numbers; those of a request before any is looked at."""
    dots = [part(base64(encoded(picture(seed, (1, 1))))) for seed in range(20)]
    full = seer.client.post(CHAT, json=chat(*dots, text()))
    assert full.status_code == 400
    assert full.json()["error"]["code"] == "context_length_exceeded"
    many = seer.client.post(CHAT, json=chat(*[part(CAT)] * 101))
    assert many.status_code == 400
    assert "at most 100 images" in many.json()["error"]["message"]


@dataclass
class Slow:
    """A server that decodes an image once it may."""

    server: Running
    has_begun: threading.Event
    may_end: threading.Event
    names: list[str]
    """Those of the images that were to be decoded."""


@pytest.fixture
def slow(
    tiny: WriteModel, start_here: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Slow]:
    """Return such a server."""
    projector = write_projector(tmp_path / "mmproj.gguf", "mlp")
    server = start_here("seer", target=tiny("llama"), projector=projector, ctx=1024)
    found = Slow(server, threading.Event(), threading.Event(), [])

    def decode(image: Image) -> Picture:
        found.names.append(image.name)
        found.has_begun.set()
        assert found.may_end.wait(60)
        return picture_of(image)

    monkeypatch.setattr("specchat.llama.kept_images.picture_of", decode)
    yield found
    found.may_end.set()


def test_images_do_not_hold_up_texts(slow: Slow) -> None:
    """An answer is written, and another one begun, while an image is decoded."""
    server, reply = slow.server, list[Any]()
    body = chat(part(CAT), text())
    thread = threading.Thread(target=lambda: reply.append(server.posted(CHAT, body)))
    with server.stream("Once", ignore_eos=True, max_tokens=300) as events:
        next(events)
        thread.start()
        assert slow.has_begun.wait(60)
        assert list(events)[-1] is None
        server.posted(CHAT, chat(text()))
    assert not reply
    slow.may_end.set()
    thread.join()
    assert reply[0]["usage"]["prompt_tokens_details"]["image_tokens"] == 64


def test_a_client_that_leaves_has_no_more_images_decoded(slow: Slow) -> None:
    """The one that is decoded is the last."""
    body = chat(part(CAT), part(DOG), text())
    with pytest.raises(httpx2.ReadTimeout), httpx2.Client(timeout=1) as client:
        client.post(slow.server.address + CHAT, json=body)
    until(lambda: not slow.server.service.prompts._count, "the end of the request")
    slow.may_end.set()
    slow.server.posted(CHAT, chat(text()))
    assert slow.names == ["messages: image 1"]


def test_images_that_take_long_do_not_hold_up_those_of_others(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the image with which a request has had its time, no more of it are decoded."""
    monkeypatch.setattr("specchat.server.prompts.SECONDS_OF_IMAGES", 0.0)
    slow.may_end.set()
    slow.server.posted(CHAT, chat(part(CAT), part(DOG), text()))  # the first opens the projector
    assert slow.names == ["messages: image 1", "messages: image 2"]
    bird = base64(encoded(picture(3)))
    reply = slow.server.client.post(CHAT, json=chat(part(CAT), part(bird), text()))
    assert reply.status_code == 400
    assert "reading the images takes more than 0 s" in reply.json()["error"]["message"]
    named = {"type": "input_image", "image_url": url(CAT)}
    reply = slow.server.client.post(RESPONSES, json={"input": [said(named, named)]})
    assert reply.json()["error"]["param"] == "input"
    assert len(slow.names) == 2
    slow.server.posted(CHAT, chat(part(CAT), text()))


def test_no_address_is_opened(seer: Running) -> None:
    """Not even one of this machine: a client would reach what only the server's can."""
    with ScriptedServer() as other:
        for given in (f"{other.address}/cat.png", f"HTTP:{other.address.partition(':')[2]}"):
            assert seer.client.post(CHAT, json=chat(part(given))).status_code == 400
        assert other.num_connections == 0


@pytest.mark.parametrize("seed", range(2))
def test_damaged_images_are_refused_well(seer: Running, seed: int) -> None:
    """No fault, no internal error, and a whole one is looked at afterwards."""
    logged = log_size(LOG)
    assert fuzz(seer.address, seed, 40, image_cases) == []
    assert log_size(LOG) == logged
    seer.posted(CHAT, chat(part(url(CAT)), text()))


def test_a_damaged_image_of_a_tool_does_not_end_the_conversation(seer: Running) -> None:
    """The model reads why it does not see it, in the place where it would be."""
    for path, body in results([text("Here:"), part(url(base64(BROKEN))), part(url(CAT))]):
        fields = {"max_output_tokens": 8} if path == RESPONSES else {"max_tokens": 8}
        assert seer.posted(path, {**body, **fields})["usage"]
    tokens = seer.posted(
        "/apply-template", results([text("Here:"), part(url(base64(BROKEN)))])[0][1]
    )
    assert "Here:[image 1 is damaged or cut off]" in tokens["prompt"]


@pytest.mark.parametrize("failure", [InvalidOption, ModelWontLoad])
def test_a_tools_image_that_cannot_be_read_here_does_not_end_it_either(
    tiny: WriteModel,
    start_here: StartServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: type[SpecchatError],
) -> None:
    """As without llama.cpp's library, or with a projector that cannot be used."""
    projector = write_projector(tmp_path / "mmproj.gguf", "mlp")
    server = start_here("seer", target=tiny("llama"), projector=projector, ctx=1024)

    def fail() -> None:
        raise failure("no image is read here")

    monkeypatch.setattr("specchat.llama.mtmd_library.load", fail)
    body = results([text("Here:"), part(url(CAT))])[0][1]
    assert "Here:[no image is read here]" in server.posted("/apply-template", body)["prompt"]
    assert server.posted(CHAT, {**body, "max_tokens": 8})["usage"]
    refused = server.client.post(CHAT, json=chat(part(url(CAT)), text()))
    assert refused.status_code >= 400
    assert "no image is read here" in refused.json()["error"]["message"]


def test_a_chat_that_is_connected_sends_its_images(seer: Running, demo_server: Running) -> None:
    """The answer is the server's; what cannot be sent is refused before."""
    shown = Image(encoded(picture(1, (64, 64))), "cat.png")
    messages: Any = [{"role": "user", "content": f"{shown}What is this?"}]
    with ConnectedEngine(parse_address(seer.address)) as engine:
        assert engine.facts.takes_images
        said = "".join(chunk.text for chunk in engine.answer(messages, images=[shown], **GREEDY))
        assert (
            said
            == seer.posted(CHAT, chat(part(url(CAT)), text()))["choices"][0]["message"]["content"]
        )
        assert engine.stats.image_tokens == 64
        asked = ChatRequest(messages, images=[shown])
        assert engine.size(asked) is None
        for images, words in (
            ([replace(shown, data=b"text")], "cat.png is not an image"),
            ([replace(shown, data=shown.data + bytes(21 * 2**20))], "21 MiB together"),
        ):
            with pytest.raises(InvalidOption, match=words):
                engine.begin(ChatRequest(messages, images=images))
        with pytest.raises(InvalidOption, match="in a conversation only"):
            engine.begin(GenerateRequest(f"{shown} is", images=[shown]))
    with ConnectedEngine(parse_address(demo_server.address)) as engine:
        assert not engine.facts.takes_images
        with pytest.raises(InvalidOption, match=r"demo at .* reads text only"):
            engine.begin(asked)


def test_ask_sends_images_to_a_server(seer: Running, demo_server: Running, tmp_path: Path) -> None:
    """As the chat does; no projector is needed here."""
    file = tmp_path / "cat.png"
    file.write_bytes(encoded(picture(1, (64, 64))))

    def ask(server: Running) -> subprocess.CompletedProcess[str]:
        words = ("ask", "--connect", server.address, "--image", str(file), "--no-stdin", "--json")
        return subprocess.run(
            [sys.executable, "-m", "specchat", *words, "--max-tokens", "8", "What is this?"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert json.loads(ask(seer).stdout)["stats"]["image_tokens"] == 64
    refused = ask(demo_server)
    assert refused.returncode == 2
    assert "reads text only" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_set_up_that_failed_is_told_to_programs(
    tiny: WriteModel, start_here: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would send images otherwise; the user learns of it, and a request that has one."""
    reason, said = "images cannot be read: no compiler", list[str]()
    projector = write_projector(tmp_path / "mmproj.gguf", "mlp")
    server = start_here("seer", target=tiny("llama"), projector=projector, ctx=1024)

    def outcome_is(outcome: str) -> None:
        def set_up(_: object, *, again: bool) -> str:
            assert again
            return outcome

        monkeypatch.setattr("specchat.server.image_setup.set_up_images", set_up)

    for outcome, kinds in (("", ["text", "image"]), (reason, ["text"])):
        outcome_is(outcome)
        server.service.image_setup.run(said.append)
        (model, *_) = server.client.get("/v1/models").json()["data"]
        assert model["architecture"]["input_modalities"] == kinds
        vision = server.client.get("/props").json()["modalities"]["vision"]
        served = served_at(server.address, "", server.service)
        assert vision == ("image" in kinds) == ('"image"' in setup_text("opencode", served))
    assert said == [reason]
    reply = server.client.post(CHAT, json=chat(part(CAT), text()))
    assert reply.status_code == 400
    assert reply.json()["error"]["message"].endswith(reason)
    server.posted(CHAT, chat(text()))
    outcome_is("")
    server.client.post(CHAT, json=chat(part(CAT), text()))
    assert not server.service.facts.takes_images  # it failed a moment ago
    monkeypatch.setattr("specchat.server.image_setup.RETRY_SECONDS", -1.0)
    server.client.post(CHAT, json=chat(part(CAT), text()))
    until(lambda: server.service.facts.takes_images, "another attempt")
    server.posted(CHAT, chat(part(CAT), text()))


def test_an_image_waits_for_what_a_clone_makes(
    tiny: WriteModel, start_here: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not refused meanwhile; what it fails with, it is refused with."""
    has_begun, may_end, reasons = threading.Event(), threading.Event(), ["", "no compiler"]

    def set_up(_: object) -> str:
        has_begun.set()
        assert may_end.wait(60)
        return reasons.pop(0)

    monkeypatch.setattr("specchat.server.prompts.set_up_images", set_up)
    projector = write_projector(tmp_path / "mmproj.gguf", "mlp")
    server = start_here("seer", target=tiny("llama"), projector=projector, ctx=1024)
    with ThreadPoolExecutor(1) as client:
        reply = client.submit(server.posted, CHAT, chat(part(CAT), text()))
        assert has_begun.wait(60)
        server.posted(CHAT, chat(text()))
        assert not reply.done()
        may_end.set()
        assert reply.result()["usage"]["prompt_tokens_details"]["image_tokens"] == 64
    refused = server.client.post(CHAT, json=chat(part(CAT), text()))
    assert "no compiler" in refused.json()["error"]["message"]
