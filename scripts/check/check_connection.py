"""Check specchat's connection to llama-server and to `specchat serve`, with a draft model each.

    scripts/check/check_connection.py TARGET DRAFT --llama-server PATH

On ten prompts, what is shown of an answer must be what the server itself counts: by its `/metrics`
before and after. Then each feature of the chat is tried once: stopping, going on with an answer,
a schema, counting tokens, a conversation that is too long, a wrong key, and the server's death in
the middle of an answer. Exits with 1 if anything differs.
"""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.request import Request, urlopen

from scripts.support.llama_server import running_server
from scripts.support.server_process import ServerProcess
from specchat.bench.tasks import TASKS
from specchat.connection.address import ServerAddress, parse_address
from specchat.connection.connected_engine import ConnectedEngine
from specchat.decoding.chunk import Chunk
from specchat.errors import ContextFull, ServerFailed
from specchat.formats.chat_message import ChatMessage
from specchat.requests.answer_request import ChatRequest
from specchat.structured.structure import Structure

KEY = "a-key-of-this-check"
PROMPTS = [prompt for task in TASKS for prompt in task.prompts][:10]
TOKENS = 64
CONTEXT = 2048
SAMPLE = re.compile(
    r"^(llamacpp|vllm):(spec_decode_num_\w+?|tokens_predicted)_total(?:\{(.*?)\})? (\S+)$",
    re.MULTILINE,
)


def main() -> int:
    """Run all checks against both servers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--llama-server", type=Path, help="the program; not checked without it")
    options = parser.parse_args()
    wrong = 0
    if options.llama_server:
        drafting = ("-md", str(options.draft), "--spec-type", "draft-simple")
        more = (*drafting, "-c", str(CONTEXT), "--metrics", "--api-key", KEY, "--no-webui")
        with running_server(options.llama_server, options.target, *more) as address:
            wrong += check("llama-server", replace(parse_address(address), key=KEY))
        wrong += check_death(options.llama_server, options.target)
    words = ["--target", str(options.target), "--draft", str(options.draft), "--ctx", str(CONTEXT)]
    with (
        tempfile.TemporaryDirectory() as state,
        ServerProcess(Path(state), [*words, "--key", KEY]) as server,
    ):
        wrong += check("specchat serve", replace(parse_address(server.address), key=KEY))
        wrong += server.end_and_report()
    print(f"{wrong} things differ" if wrong else "all as it should be")
    return 1 if wrong else 0


def check(name: str, address: ServerAddress) -> int:
    """Check one server; return how many things are wrong."""
    wrong = drafted = 0
    with ConnectedEngine(address) as engine:
        print(f"{name}: {engine.facts.target}, {engine.facts.plan}, context {engine.facts.context}")
        for number, prompt in enumerate(PROMPTS):
            before = counted(address)
            chunks = list(engine.answer(asked(prompt), temperature=0.0, max_tokens=TOKENS))
            own, since = engine.stats, difference(counted(address), before)
            theirs = since["draft_tokens"], since["accepted_tokens"]
            is_same = (own.drafted, own.accepted) == theirs
            drafted += own.drafted
            if "tokens_predicted" in since:
                is_same &= own.generated_tokens == since["tokens_predicted"]
            wrong += not is_same
            print(
                f"  prompt {number}: {own.accepted} of {own.drafted} drafted,"
                f" {own.generated_tokens} tokens, {own.tokens_per_step:.2f} a pass,"
                f" server {theirs[1]} of {theirs[0]}:"
                f" {'equal' if is_same else 'DIFFERENT'}; {len(text_of(chunks))} characters"
            )
        wrong += not drafted
        for feature in FEATURES:
            try:
                feature(engine, address)
            except (AssertionError, ServerFailed) as error:
                wrong += 1
                print(f"  {feature.__name__}: WRONG: {error}")
            else:
                print(f"  {feature.__name__.replace('_', ' ')}: as it should be")
    return wrong


def stopping(engine: ConnectedEngine, address: ServerAddress) -> None:
    """Stop an answer after five parts; the next one is whole."""
    del address
    chunks = []
    for chunk in engine.answer(asked("Count from 1 to 500."), max_tokens=1000):
        chunks.append(chunk)
        if len(chunks) == 5:
            engine.stop()
    expect(chunks[-1].finish == "cancelled", chunks[-1])
    again = list(engine.answer(asked("Say hello."), max_tokens=8))
    expect(text_of(again), "no answer after a stop")


def going_on_with_an_answer(engine: ConnectedEngine, address: ServerAddress) -> None:
    """Continue an answer of the assistant: the same text as without a break."""
    del address
    question = asked("Name three rivers.")
    whole = text_of(list(engine.answer(question, temperature=0.0, max_tokens=24)))
    half = whole[: whole.rindex(" ")]
    begun: list[ChatMessage] = [*question, {"role": "assistant", "content": half}]
    rest = text_of(list(engine.answer(begun, temperature=0.0, max_tokens=3)))
    expect(rest, "nothing came")
    expect(half[:12] not in rest, "it repeats what it had")
    expect(whole.startswith(half + rest[:8]), f"{rest!r} does not follow {half[-20:]!r}")
    print(f"    {half[-20:]!r} goes on with {rest!r}")


def a_schema(engine: ConnectedEngine, address: ServerAddress) -> None:
    """An answer is JSON of a schema."""
    del address
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    structure = Structure("json_schema", json.dumps(schema))
    answer = text_of(
        list(engine.answer(asked("Give a number."), structure=structure, max_tokens=60))
    )
    expect(isinstance(json.loads(answer)["n"], int), answer)


def counting_tokens(engine: ConnectedEngine, address: ServerAddress) -> None:
    """The server's count before an answer is the one after it."""
    del address
    question = asked("How many tokens does this question have?")
    size = engine.size(ChatRequest(messages=question))
    list(engine.answer(question, max_tokens=2))
    counted_before = size.prompt_tokens if size else 0
    expect(counted_before == engine.stats.prompt_tokens, (size, engine.stats.prompt_tokens))


def a_conversation_that_is_too_long(engine: ConnectedEngine, address: ServerAddress) -> None:
    """The oldest turns are left out if that is wanted."""
    del address
    long: list[ChatMessage] = []
    for number in range(12):
        long += asked(f"Question {number}: " + "some words and more " * 60)
        long.append({"role": "assistant", "content": f"Answer {number}."})
    long += asked("What was this about?")
    answer = list(engine.answer(long, make_room=True, max_tokens=16))
    expect(text_of(answer), "no answer")
    expect(engine.stats.left_out, "nothing left out")
    try:
        list(engine.answer(long, max_tokens=16))
    except ContextFull as error:
        expect(error.capacity == CONTEXT, str(error))
    else:
        raise AssertionError("a conversation that is too long was answered")


def a_wrong_key(engine: ConnectedEngine, address: ServerAddress) -> None:
    """One line, without the key."""
    del engine
    try:
        ConnectedEngine(replace(address, key="wrong")).close()
        list(ConnectedEngine(replace(address, key="wrong")).answer(asked("hi"), max_tokens=1))
    except ServerFailed as error:
        expect("rejected the key" in str(error), str(error))
    else:
        raise AssertionError("a wrong key was accepted")


FEATURES: tuple[Callable[[ConnectedEngine, ServerAddress], None], ...] = (
    stopping,
    going_on_with_an_answer,
    a_schema,
    counting_tokens,
    a_conversation_that_is_too_long,
    a_wrong_key,
)


def check_death(program: Path, target: Path) -> int:
    """Kill a server in the middle of an answer; return 1 unless that is one line and text."""
    text, engine = "", None
    try:
        with running_server(program, target, "--no-webui") as address:
            engine = ConnectedEngine(parse_address(address))
            chunks = engine.answer(asked("Tell a very long story."), max_tokens=2000)
            for _ in range(20):
                text += next(chunks).text
    except ServerFailed as error:
        print(f"  unexpected: {error}")
        return 1
    expect(engine is not None, "not connected")
    try:
        text += "".join(chunk.text for chunk in chunks)
    except ServerFailed as error:
        print(f"killed in the middle: {len(text)} characters kept; {error}")
        return 0
    finally:
        engine.close()
    print("killed in the middle: WRONG, the answer ended without an error")
    return 1


def expect(condition: object, what: object) -> None:
    """Raise AssertionError unless a condition holds."""
    if not condition:
        raise AssertionError(str(what))


def asked(question: str) -> list[ChatMessage]:
    """Return a conversation with one question."""
    return [{"role": "user", "content": question}]


def text_of(chunks: list[Chunk]) -> str:
    """Return the answer and its reasoning."""
    return "".join(chunk.reasoning + chunk.text for chunk in chunks)


def counted(address: ServerAddress) -> dict[str, int]:
    """Return the server's counters, by the last words of their names."""
    request = Request(f"{address.base}/metrics", headers={"Authorization": f"Bearer {KEY}"})  # noqa: S310
    with urlopen(request) as response:  # noqa: S310 -- the address is ours
        text = response.read().decode()
    found: dict[str, int] = {}
    samples = SAMPLE.findall(text)
    prefix = samples[0][0] if samples else ""  # specchat counts under both names
    for names, name, labels, value in samples:
        if names == prefix and "position" not in labels:
            short = name.removeprefix("spec_decode_num_")
            found[short] = found.get(short, 0) + int(float(value))
    return found


def difference(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """Return what was counted in between."""
    zero = {"draft_tokens": 0, "accepted_tokens": 0}
    return {**zero, **{name: value - before.get(name, 0) for name, value in after.items()}}


if __name__ == "__main__":
    sys.exit(main())
