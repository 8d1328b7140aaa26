"""Requests of all kinds that no client should send, and whether a server takes them well."""

import base64
import contextlib
import http.client
import io
import json
import random
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
BUSY, FIRST_ERROR, FIRST_FAULT = 503, 400, 500
SECONDS = 30.0
NOT_HTTP = "not HTTP"
"""What an error says if not even the path could be read; it has the shape of OpenAI's APIs."""
JSON = "application/json"

TOOL = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"},
    {"role": "tool", "tool_call_id": "c1", "content": "done"},
    {"role": "user", "content": "And now?", "name": "me"},
]
SAMPLING = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "min_p": 0.1,
    "repeat_penalty": 1.1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "repeat_last_n": 8,
    "seed": 1,
    "logit_bias": {"5": 1},
    "drafter": "auto",
    "draft_length": "auto",
    "draft_tree": "auto",
    "exact": "auto",
    "verify": False,
    "ignore_eos": False,
}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
    "required": ["a"],
}
NAMED_SCHEMA = {"type": "json_schema", "name": "s", "schema": SCHEMA, "strict": True}
STRUCTURES: dict[str, Any] = {
    "response_format": {"type": "text"},
    "json_schema": None,
    "grammar": None,
    "structured_outputs": {"json": SCHEMA, "regex": None, "choice": None},
    "show_schema": True,
}
OPENAI = {
    "model": "demo",
    "stream": False,
    "stream_options": {"include_usage": True},
    "stop": ["x"],
    "n": 1,
    "user": "u",
    "metadata": {"a": "b"},
    **SAMPLING,
}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {
        **OPENAI,
        "messages": TURNS,
        "max_tokens": 2,
        "max_completion_tokens": 2,
        "logprobs": True,
        "top_logprobs": 2,
        "tools": [{"type": "function", "function": TOOL}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning_effort": "low",
        "chat_template_kwargs": {"a": 1},
        **STRUCTURES,
        "enforce_tools": True,
        "prediction": {"type": "content", "content": [{"type": "text", "text": "hello"}]},
    },
    COMPLETIONS: {
        **OPENAI,
        "prompt": "Once",
        **STRUCTURES,
        "max_tokens": 2,
        "logprobs": 2,
        "echo": True,
        "suffix": "",
        "best_of": 1,
    },
    RESPONSES: {
        **SAMPLING,
        "model": "demo",
        "stream": False,
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "done"},
            {"type": "reasoning", "summary": [], "content": []},
        ],
        "instructions": "Be brief.",
        "max_output_tokens": 16,
        "tools": [{"type": "function", **TOOL}, {"type": "web_search"}],
        "tool_choice": "auto",
        "reasoning": {"effort": "low"},
        "text": {"format": NAMED_SCHEMA},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "previous_response_id": None,
        "parallel_tool_calls": True,
        "truncation": "disabled",
        "prompt_cache_key": "k",
        "metadata": {},
    },
    MESSAGES: {
        "model": "demo",
        "max_tokens": 2,
        "stream": False,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "calling"},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}],
            },
        ],
        "stop_sequences": ["x"],
        "temperature": 0.5,
        "top_k": 5,
        "top_p": 0.9,
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"format": NAMED_SCHEMA, "effort": "low"},
        "metadata": {"user_id": "u"},
    },
    "/completion": {**SAMPLING, "prompt": "x", "n_predict": 2, "n_indent": 1, "stream": False},
    "/infill": {
        **SAMPLING,
        "input_prefix": "def f(",
        "input_suffix": "\n",
        "prompt": "x",
        "input_extra": [{"filename": "a.py", "text": "x = 1"}],
        "n_predict": 2,
        "n_indent": 4,
        "n_cmpl": 1,
        "t_max_predict_ms": 9,
        "response_fields": ["content", "timings/prompt_n"],
        "stream": False,
    },
    "/tokenize": {"content": "hi", "add_special": True, "parse_special": True},
    "/detokenize": {"tokens": [1, 2, 3]},
    "/apply-template": {"messages": TURNS},
}
BODIES[COUNT] = BODIES[MESSAGES]
OTHER_PATHS = (
    *("/", "/health", "/metrics", "/v1/models", "/v1/models/demo", "/v1/models/", "/v1/nothing"),
    *("/v1/models/%2e%2e/%00", "/..//../etc/passwd", "//", "/%ff%fe", "/v1/chat/completions/"),
    *("/v1/messages/x", "/v1/chat/completions?beta=true&x=%zz", "/?" + "q" * 4000, "/\u00e9"),
    *("http://evil.example/v1/models", "*", "/v1/models/" + "m" * 3000),
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW", "get")
NAMES = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "</s>", "<tool_call>", "{{ x }}", "{% %}")


def nested(depth: int, kind: type) -> Any:
    """Return lists or objects in each other."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, -0.0, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400),
    *(1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf")),
    *(
        "",
        " ",
        "x",
        "1",
        "null",
        "auto",
        "\0",
        "a\0b",
        "\ud800",
        "\udfff\ud800",
        "\u202e",
        "\ufeff",
    ),
    *("x" * 60_000, "\U0001f600" * 500, "\n" * 3000, *NAMES, "".join(NAMES) * 50),
    *([], {}, [None], [1], ["x"], [[]], [{}], {"type": 1}, {"a": None}, {"": ""}, {"\0": "\ud800"}),
    *({"type": "text"}, {"type": "text", "text": 1}, {"type": "image_url", "image_url": "x"}),
    *({"role": "wizard"}, {"role": "user"}, {"role": None, "content": []}, {"role": "assistant"}),
    *(["x"] * 500, list(range(500)), {str(number): number for number in range(500)}),
    *(nested(60, list), nested(60, dict), *(f"deep {depth}" for depth in (200, 450, 900, 3000))),
)
DEEP = re.compile(rb'"deep (\d+)"')
"""Stands for a number in as many lists and objects, which Python's module is not able to write."""


@dataclass(frozen=True)
class Case:
    """A request as it is sent, and what it is; a half one is left before its reply.

    It is sent in `num_pieces`, with a pause after each.
    """

    name: str
    method: str
    path: str
    data: bytes
    is_half: bool = False
    num_pieces: int = 1


def cases(seed: int, count: int) -> Iterator[Case]:
    """Yield requests, the same for the same seed."""
    odd = (_odd_json, _odd_json, _odd_bytes, _odd_head, _odd_path)
    makers = (*[_odd_fields] * 6, *odd, _half, _slow, _large)
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        yield draw.choice(makers)(draw)


def image_cases(seed: int, count: int) -> Iterator[Case]:
    """Yield requests with images that are damaged, or sent in odd parts."""
    files = _pictures()
    for number in range(count):
        draw = random.Random(f"{seed} image {number}")
        yield _odd_image(draw, draw.choice(list(files)), files)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all parts of a body but the body itself."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, part in items:
        yield (*path, key)
        yield from _places(part, (*path, key))


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy with one part replaced."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    with contextlib.suppress(KeyError, IndexError, TypeError):  # a part of what was replaced before
        copy[path[0]] = _with(value[path[0]], path[1:], new)
    return copy


def _body(draw: random.Random) -> tuple[str, Any, str]:
    """Return an endpoint, a body with odd parts, and which."""
    path = draw.choice(list(BODIES))
    whole, body, names = BODIES[path], BODIES[path], list[str]()
    if draw.random() < 0.5:
        kept = {key: text for key, text in whole.items() if draw.random() < 0.3}
        wanted = ("messages", "prompt", "input", "max_tokens", "max_output_tokens")
        body = {**kept, **{key: whole[key] for key in wanted if key in whole}}
    if "stream" in whole and draw.random() < 0.3:
        body = {**body, "stream": True}
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        place = draw.choice(list(_places(body)) or [()])
        new = draw.choice(ODD)
        body = _with(body, place, new)
        names.append(f"{'.'.join(map(str, place))}={str(new)[:30]!r}")
    return path, body, " ".join(names)


def _encoded(body: Any) -> bytes:
    """Return JSON, with NaN and what else Python's module lets pass."""

    def deep(found: re.Match[bytes]) -> bytes:
        depth = int(found[1])
        return b'{"a":[' * depth + b"1" + b"]}" * depth

    return DEEP.sub(deep, json.dumps(body).encode("utf-8", "surrogatepass"))


def _request(
    path: str, body: bytes, method: str = "POST", headers: Mapping[str, str] | None = None
) -> bytes:
    lines = {
        "Host": "localhost", "Content-Type": JSON, "Content-Length": str(len(body)),
        "Connection": "close", **(headers or {}),
    }  # fmt: skip
    head = "".join(f"{name}: {text}\r\n" for name, text in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("utf-8", "surrogatepass") + body


def _odd_fields(draw: random.Random) -> Case:
    path, body, name = _body(draw)
    return Case(name, "POST", path, _request(path, _encoded(body)))


def _odd_json(draw: random.Random) -> Case:
    """Return a body that is not quite JSON."""
    path = draw.choice(list(BODIES))
    body = _encoded(BODIES[path])
    first = body[1 : body.index(b",")]
    ways: dict[str, Callable[[], bytes]] = {
        "empty": bytes,
        "blanks": lambda: b"  \r\n\t ",
        "cut": lambda: body[: draw.randrange(len(body))],
        "twice": lambda: body + body,
        "same key twice": lambda: b"{" + first + b"," + body[1:],
        "comma at the end": lambda: body[:-1] + b",}",
        "comment": lambda: b"/* hi */" + body,
        "BOM": lambda: b"\xef\xbb\xbf" + body,
        "UTF-16": lambda: body.decode().encode("utf-16"),
        "UTF-32": lambda: body.decode().encode("utf-32-le"),
        "list": lambda: b"[" + body + b"]",
        "text": lambda: json.dumps(body.decode()).encode(),
        "number": lambda: b"9" * 5000,
        "brackets": lambda: b"[" * 100_000,
        "braces": lambda: b'{"a":' * 50_000,
        "zeros": lambda: b"\0" * 100,
        "invalid UTF-8": lambda: body.replace(b"hi", b"h\xff\xfei").replace(b"Once", b"\xc3\x28"),
        "long escape": lambda: body.replace(b"hi", b"\\ud83d\\u").replace(b"Once", b"\\x00"),
        "raw control": lambda: body.replace(b"hi", b"h\0\x01i").replace(b"Once", b"\x1b[5m"),
        "huge exponent": lambda: body.replace(b"0.5", b"1e999999999"),
        "hex": lambda: body.replace(b"0.5", b"0x10"),
        "plus": lambda: body.replace(b"0.5", b"+1"),
    }
    name = draw.choice(list(ways))
    return Case(f"JSON: {name}", "POST", path, _request(path, ways[name]()))


def _odd_bytes(draw: random.Random) -> Case:
    """Return a body with some bytes changed."""
    path = draw.choice(list(BODIES))
    body = bytearray(_encoded(BODIES[path]))
    for _ in range(draw.choice((1, 3, 20))):
        body[draw.randrange(len(body))] = draw.randrange(256)
    return Case(f"bytes: {path}", "POST", path, _request(path, bytes(body)))


def _odd_head(draw: random.Random) -> Case:
    """Return a request with odd headers."""
    path = draw.choice(list(BODIES))
    body = _encoded({**BODIES[path], "max_tokens": 1})
    odd = draw.choice(("", " ", "\u00e9\u00ff", "x" * 8000, "a,b", "\t", "null", "*", "[::1", "%"))
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    headers = draw.choice(
        (
            *({name: odd} for name in ("Origin", "Authorization", "X-Api-Key", "User-Agent")),
            *({name: odd} for name in ("Host", "Content-Type", "Accept", "Accept-Encoding")),
            *({name: odd} for name in ("Cookie", "Expect", "Range", "X-Forwarded-For", "Upgrade")),
            {"Content-Type": "text/plain"},
            {"Content-Type": "application/json; charset=utf-16"},
            {"Content-Type": "multipart/form-data; boundary=x"},
            {"Content-Encoding": "gzip"},
            {"Content-Length": str(len(body) - 3)},
            {"Content-Length": "-5"},
            {"Content-Length": "9" * 30},
            {"Content-Length": "1e3"},
            {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "x"},
            {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"},
            {"Expect": "100-continue"},
            {"Authorization": f"Bearer {odd}"},
            {f"X-{number}": "y" for number in range(200)},
        )
    )
    if draw.random() < 0.2:
        endless = b"ffffffffffffffffff\r\nx"
        way = draw.choice((chunked, b"zz\r\n", b"-1\r\n", endless, chunked + b"GET / \r\n"))
        data = _request(path, way, headers={**headers, "Transfer-Encoding": "chunked"})
        data = data.replace(b"Content-Length: ", b"X-Length: ")
        return Case(f"chunked {headers!r:.60}", "POST", path, data, is_half=way == endless)
    return Case(f"head {headers!r:.60}", "POST", path, _request(path, body, headers=headers))


def _odd_path(draw: random.Random) -> Case:
    """Return a request with an odd method or path."""
    path = draw.choice((*OTHER_PATHS, *BODIES))
    method = draw.choice(METHODS)
    body = draw.choice((b"", b"{}", b"x"))
    return Case(f"{method} {path[:60]}", method, path, _request(path, body, method))


def _odd_image(draw: random.Random, kind: str, files: Mapping[str, bytes]) -> Case:
    """Return a request about an image of a kind of file, after which the model says a word."""
    path, data = draw.choice((CHAT, RESPONSES, MESSAGES, COUNT)), bytearray(files[kind])
    way = draw.choice(("whole", "flipped", "flipped", "cut", "grown", "mixed"))
    if way == "flipped":
        for _ in range(draw.choice((1, 3, 30))):
            data[draw.randrange(len(data))] = draw.randrange(256)
    elif way == "cut":
        del data[draw.randrange(len(data)) :]
    elif way == "grown":
        data[draw.randrange(len(data)) : 0] = draw.randbytes(2000)
    elif way == "mixed":
        data[draw.randrange(len(data)) :] = files[draw.choice(list(files))]
    sent = base64.b64encode(data).decode()
    url, text = f"data:image/{kind.lower()};base64,{sent}", "What is this?"
    part: Any = {"type": "image_url", "image_url": {"url": url}}
    if path == RESPONSES:
        part = {"type": "input_image", "image_url": url}
    elif path in (MESSAGES, COUNT):
        source = {"type": "base64", "media_type": f"image/{kind.lower()}", "data": sent}
        part = {"type": "image", "source": source}
    name = f"{way} {kind}"
    if draw.random() < ODD_PARTS:
        place, new = draw.choice(list(_places(part))), draw.choice(ODD)
        part, name = _with(part, place, new), f"{'.'.join(map(str, place))}={str(new)[:30]!r}"
    turn = {"role": "user", "content": [part, {"type": "text", "text": text}]}
    field = "input" if path == RESPONSES else "messages"
    body = {field: [turn], "max_output_tokens" if path == RESPONSES else "max_tokens": 2}
    return Case(f"image: {name}", "POST", path, _request(path, _encoded(body)))


def _pictures() -> dict[str, bytes]:
    """Return a small picture as a file of each kind that is read."""
    from PIL import Image

    shades = Image.radial_gradient("L").resize((40, 30)).convert("RGB")
    files = dict[str, bytes]()
    for kind in ("PNG", "JPEG", "WEBP", "GIF"):
        file = io.BytesIO()
        shades.save(file, kind)
        files[kind] = file.getvalue()
    return files


def _half(draw: random.Random) -> Case:
    """Return a request that the client leaves before it is whole, or before its reply."""
    path = draw.choice(list(BODIES))
    data = _request(path, _encoded({**BODIES[path], "stream": draw.random() < 0.5}))
    end = draw.choice((len(data), draw.randrange(1, len(data))))
    return Case(f"half: {end} of {len(data)}", "POST", path, data[:end], is_half=True)


def _slow(draw: random.Random) -> Case:
    """Return a request that comes in pieces."""
    path = draw.choice(list(BODIES))
    return Case("slow", "POST", path, _request(path, _encoded(BODIES[path])), num_pieces=20)


def _large(draw: random.Random) -> Case:
    """Return a request of up to the largest size, of one kind of JSON."""
    path, size = draw.choice(list(BODIES)), int(2 ** draw.uniform(*LARGE))
    kind = draw.choice(list(REPEATED))
    part = REPEATED[kind]
    repeated = part * (size // len(part))
    value = b"[" + repeated.removesuffix(b",") + b"]" if part.endswith(b",") else repeated
    field = draw.choice(("messages", "prompt", "input", "content", "tools", "logit_bias", "stop"))
    body = b'{"%s": %s, %s' % (field.encode(), value, _encoded(BODIES[path])[1:])
    if draw.random() < 0.5:  # the last of two equal fields counts
        body = _encoded(BODIES[path])[:-1] + b', "%s": %s}' % (field.encode(), value)
    is_half, name = draw.random() < 0.2, f"large: {kind} in {field}, {len(body)} bytes"
    data = _request(path, body)
    if draw.random() < 0.1:
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body[:CHUNKS])
        data = _request(path, chunks, headers={"Transfer-Encoding": "chunked"})
        data, name = data.replace(b"Content-Length: ", b"X-Length: "), f"chunks of a byte: {name}"
        is_half = True
    return Case(name, "POST", path, data, is_half)


LARGE = 14, 25
"""Powers of two: the bytes of large requests."""
CHUNKS = 200_000
REPEATED = {
    "brackets": b"[",
    "braces": b'{"a":',
    "numbers": b"1,",
    "pairs": b"[1,1],",
    "texts": b'"",',
    "objects": b"{},",
    "messages": b'{"role":"user","content":"x"},',
    "answers": b'{"type":"reasoning","role":"assistant","content":"so"},',
    "long answers": b'{"role":"assistant","content":"%s"},' % (b"so " * 2000),
    "thoughts": b'{"type":"thinking","thinking":"%s"},' % (b"so " * 200),
    "tools": b'{"type":"function","function":{"name":"f"}},',
    "images": b'{"role":"user","content":[{"type":"image_url","image_url":{"url":"%s"}}]},'
    % (b"QUJD" * 100_000),
    "names": b'"%s",' % ("<|im_start|>" * 5000).encode(),
    "quotes": b'"',
    "backslashes": b"\\",
    "escapes": b'"%s",' % (b"\\n" * 100_000),
    "halves": b'"%s",' % (b"\\ud83d" * 10_000),
    "emoji": b'"%s\\ud83d",' % (b"\\ud83d\\ude00" * 10_000),
    "spaces": b'"%s",' % (b" " * 1_000_000),
    "one letter": b'"%s",' % (b"a" * 1_000_000),
}
"""What is repeated in large requests; what ends in a comma is repeated in a list."""
ODD_PARTS = 0.3
"""How many images are sent in a part that is odd somewhere."""
PAUSE = 0.02
"""Seconds between the pieces of a slow request."""


def send(address: str, case: Case) -> str:
    """Send a request; return what is wrong with its reply, empty if nothing is."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port or 80), SECONDS) as connection:
        try:
            step = -(-len(case.data) // case.num_pieces)
            for begin in range(0, len(case.data), step):
                connection.sendall(case.data[begin : begin + step])
                time.sleep(PAUSE * (case.num_pieces > 1))
        except ConnectionError:  # refused before it was all read
            pass
        except TimeoutError:
            return f"not read within {SECONDS} s"
        if case.is_half:
            return ""
        reply = http.client.HTTPResponse(connection, method=case.method)
        try:
            reply.begin()
            body = reply.read()
        except ConnectionResetError:  # with the rest of a request that was refused still on its way
            return ""
        except TimeoutError:
            return f"no reply within {SECONDS} s"
        except (http.client.HTTPException, OSError) as error:
            return f"no reply: {error!r}"
    return _fault_of(case, reply, body)


def _fault_of(case: Case, reply: http.client.HTTPResponse, body: bytes) -> str:
    if reply.status >= FIRST_FAULT and reply.status != BUSY:
        return f"{reply.status}: {body[:300]!r}"
    if case.method == "HEAD" or reply.status == http.HTTPStatus.NO_CONTENT:
        return ""
    kind = reply.headers.get_content_type()
    if kind == "text/event-stream":
        return "; ".join(filter(None, map(partial(_event_fault, case.path), body.split(b"\n\n"))))
    if reply.status < FIRST_ERROR:
        return "" if kind != JSON or _decoded(body) is not None else f"not JSON: {body[:300]!r}"
    return _shape_fault(case.path, _decoded(body), body)


def _event_fault(path: str, event: bytes) -> str:
    """Return what is wrong with an event: one that is not JSON, or an error that is a fault."""
    text = b"".join(line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")).strip()
    if not text or text == b"[DONE]":
        return ""
    found = _decoded(text)
    if found is None:
        return f"event is not JSON: {text[:300]!r}"
    error = found.get("error")
    if error and error.get("type") in {"server_error", "api_error"}:
        return f"fault in a stream: {error}"
    return _shape_fault(path, found, text) if error else ""


def _shape_fault(path: str, found: Any, body: bytes) -> str:
    """Return what is wrong with an error's shape, which each API has its own of."""
    if not isinstance(found, dict) or not isinstance(found.get("error"), dict):
        return f"not an error of this API: {body[:300]!r}"
    error = found["error"]
    is_anthropic = path.startswith("/v1/messages") and NOT_HTTP not in str(error.get("message"))
    wanted = {"type", "message"} if is_anthropic else {"type", "message", "param", "code"}
    if not (wanted <= set(error) and isinstance(error["message"], str) and error["message"]):
        return f"parts are missing: {found}"
    if is_anthropic != (found.get("type") == "error"):
        return f"the shape of the other API: {found}"
    return ""


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def fuzz(
    address: str,
    seed: int,
    count: int,
    make: Callable[[int, int], Iterator[Case]] = cases,
) -> list[str]:
    """Send requests one after the other; return a line for each that was not taken well."""
    found = ((case, send(address, case)) for case in make(seed, count))
    return [f"{case.path:.60} {case.name}: {fault}" for case, fault in found if fault]
