"""GGUF files damaged at random and chat templates of random fragments, and how they end.

A prediction head is damaged as a file of parts: what reads it takes the numbers in its metadata,
and the sizes and types of its tensors, for what they say.
"""

import random
import select
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import gguf

from scripts.support.tiny_gguf.drafts import write_case
from specchat.errors import SpecchatError, TemplateError
from specchat.formats.template import render
from specchat.gguf.model_files import read_whole_model
from specchat.gguf.tensor_types import STORED_TYPES
from specchat.planning.memory import Sizes
from specchat.system.python_child import child_python

MOST_SECONDS = 10.0
HEADER_BYTES = 1 << 14
"""The bytes of a file that most changes hit: what is behind them is mostly numbers."""
EDGES = [0, 1, 2, 7, 8, 127, 128, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
FRAGMENTS = [
    "{% for m in messages %}", "{% endfor %}", "{{ m.content }}", "{{ messages }}", "{% if x %}",
    "{% endif %}", "{% set a = 'a' * 100000 %}", "{{ a.rfind(a) }}", "{{ a ~ a }}", "{%-", "-%}",
    "{{ range(99999) | list }}", "{{ ''.__class__.__mro__ }}", "{{ 9 ** 99999 }}", "{# ", " #}",
    "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "{{ raise_exception('\\x1b[2J') }}", "}}",
    "{{ cycler.__init__.__globals__ }}", "{{ messages[0].pop }}", "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}", "{{ lipsum(99) }}", "\x1b]0;title\x07", "\x00", "{{ '%c' % 27 }}",
]  # fmt: skip
LOADER = """
import sys
from pathlib import Path
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import SpecchatError
for line in sys.stdin:
    try:
        with LocalEngine(Loading(Path(line.strip()), threads=1, ctx=64, learn=False)) as engine:
            list(engine.generate([1, 2, 3], max_tokens=4, ignore_end=True))
        print("loaded", flush=True)
    except SpecchatError:
        print("refused", flush=True)
    except Exception as error:
        print(f"unexpected {type(error).__name__}", flush=True)
"""
HEAD_LOADER = """
import sys
from pathlib import Path
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import SpecchatError
def answer(draft, drafter):
    loading = Loading(Path(sys.argv[1]), draft, threads=1, ctx=64, learn=False)
    with LocalEngine(loading) as engine:
        chunks = engine.generate(
            [40, 75, 111, 260, 90], max_tokens=16, ignore_end=True, temperature=0.0,
            drafter=drafter, draft_length=3,
        )
        return [token for chunk in chunks for token in chunk.tokens]
plain = answer(None, "none")
for line in sys.stdin:
    try:
        same = answer(Path(line.strip()), "head") == plain
        print("drafted" if same else "unexpected text", flush=True)
    except SpecchatError:
        print("refused", flush=True)
    except Exception as error:
        print(f"unexpected {type(error).__name__}", flush=True)
"""
HEADS = {
    "prediction head": "qwen35 with MTP",
    "heads in turn": "mimo2 with MTP in turn",
    "assistant": "gemma4 with MTP",
    "EAGLE-3": "llama with EAGLE-3",
    "DFlash": "qwen3 with DFlash",
    "DFlash 2": "qwen3 with DFlash 2",
    "DSpark": "qwen3 with DSpark",
}
"""A target and its draft for each kind of head."""
ENDED = "the child process ended"
MOST_VALUES = 1 << 20
"""The most values of a tensor whose data is written in full."""


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return a file with some of its bytes changed, numbers set to edges, or its end missing."""
    changed = bytearray(content)
    for _ in range(chance.randrange(1, 6)):
        end = len(changed) if chance.random() < 0.2 else min(HEADER_BYTES, len(changed))
        place = chance.randrange(4, end)
        kind = chance.random()
        if kind < 0.4:
            changed[place] = chance.randrange(256)
        elif kind < 0.8:
            size = chance.choice([1, 2, 4, 8])
            number = chance.choice(EDGES) % (1 << (8 * size))
            changed[place : place + size] = number.to_bytes(size, "little")
        elif kind < 0.95:
            other = chance.randrange(4, end)
            changed[place : place + 32] = changed[other : other + 32]
        else:
            del changed[place:]
            break
        if len(changed) < 8:
            break
    return bytes(changed)


def timed(act: Callable[[], str]) -> str:
    """Return how something ended; "slow" if it took too long."""
    began = time.monotonic()
    try:
        found = act()
    except SpecchatError:
        found = "refused"
    except Exception as error:  # noqa: BLE001  # this is what is looked for
        found = f"unexpected {type(error).__name__}"
    return found if time.monotonic() - began < MOST_SECONDS else "slow"


def fuzz_headers(model: bytes, count: int, folder: Path, chance: random.Random) -> Counter[str]:
    """Read damaged headers in this process."""
    path = folder / "damaged.gguf"

    def read() -> str:
        header = read_whole_model(path)
        _ = Sizes(header).header.chat_template
        return "read"

    results: Counter[str] = Counter()
    for _ in range(count):
        path.write_bytes(damaged(model, chance))
        results[timed(read)] += 1
    return results


def fuzz_templates(count: int, chance: random.Random) -> Counter[str]:
    """Render templates of random fragments."""

    def draw() -> str:
        text = render(
            "".join(chance.choices(FRAGMENTS, k=chance.randrange(1, 12))),
            {"messages": [{"role": "user", "content": "Hello"}]},
        )
        return "a secret" if "root:" in text else "rendered"

    def checked() -> str:
        try:
            return draw()
        except TemplateError as error:
            return "unexpected escape" if "\x1b" in str(error) else "refused"

    return Counter(timed(checked) for _ in range(count))


def fuzz_loads(model: bytes, count: int, folder: Path, chance: random.Random) -> Counter[str]:
    """Load damaged files in child processes."""
    files = (damaged(model, chance) for _ in range(count))
    return Counter(end for end, _ in ends_of_loads(files, folder / "damaged.gguf", LOADER))


def fuzz_heads(
    kind: str, count: int, folder: Path, chance: random.Random, kept: Path | None = None
) -> Counter[str]:
    """Draft with damaged heads of a kind in child processes; keep those that do harm."""
    paths = write_case(folder, HEADS[kind])
    head = read_parts(paths["draft"])
    files = (damaged_head(head, chance) for _ in range(count))
    results: Counter[str] = Counter()
    path = folder / "damaged.gguf"
    for end, content in ends_of_loads(files, path, HEAD_LOADER, str(paths["target"])):
        results[end] += 1
        if kept and end not in {"drafted", "refused"}:
            (kept / f"{kind}-{results.total()}.gguf").write_bytes(content)
    return results


def ends_of_loads(
    files: Iterable[bytes], path: Path, source: str, *arguments: str
) -> Iterator[tuple[str, bytes]]:
    """Yield how the load of each file ends, in child processes that are started again if they do.

    `source` loads the files that are named on its standard input.
    """
    loader = started(source, *arguments)
    for content in files:
        path.write_bytes(content)
        assert loader.stdin is not None  # noqa: S101  # both are pipes
        assert loader.stdout is not None  # noqa: S101
        loader.stdin.write(f"{path}\n".encode())
        loader.stdin.flush()
        ready, _, _ = select.select([loader.stdout], [], [], MOST_SECONDS)
        answer = loader.stdout.readline().decode().strip() if ready else "slow"
        yield answer or ENDED, content
        if not ready or not answer:
            loader.kill()
            loader.communicate()
            loader = started(source, *arguments)
    loader.kill()
    loader.communicate()


def started(source: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a child process that loads the files named on its standard input."""
    (python, *_), environment = child_python("unused")
    return subprocess.Popen(
        [python, "-P", "-c", source, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
    )  # fmt: skip


@dataclass
class _Tensor:
    """A tensor of a file: its shape in ggml's order, the number of its type, and its data."""

    shape: list[int]
    stored: int
    data: bytes


@dataclass
class Parts:
    """A GGUF file in parts: entries of metadata as bytes, by key, and tensors by name."""

    entries: dict[str, bytes]
    tensors: dict[str, _Tensor] = field(default_factory=dict)

    def copy(self) -> "Parts":
        """Return parts that can be changed without these."""
        tensors = {
            name: _Tensor([*each.shape], each.stored, each.data)
            for name, each in self.tensors.items()
        }
        return Parts(dict(self.entries), tensors)

    def content(self) -> bytes:
        """Return the bytes of the file."""
        infos, data = b"", b""
        for name, tensor in self.tensors.items():
            text, shape = name.encode(), [size % 2**64 for size in tensor.shape]
            infos += struct.pack("<Q", len(text)) + text
            infos += struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
            infos += struct.pack("<IQ", tensor.stored, len(data))
            data += tensor.data + bytes(-len(tensor.data) % 32)
        head = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.entries))
        head += b"".join(self.entries.values()) + infos
        return head + bytes(-len(head) % 32) + data


def read_parts(path: Path) -> Parts:
    """Return the parts of a file."""
    reader = gguf.GGUFReader(path)
    entries = {
        key: b"".join(part.tobytes() for part in entry.parts)
        for key, entry in reader.fields.items()
        if not key.startswith("GGUF.")
    }
    tensors = {
        each.name: _Tensor(list(map(int, each.shape)), int(each.tensor_type), each.data.tobytes())
        for each in reader.tensors
    }
    return Parts(entries, tensors)


def damaged_head(head: Parts, chance: random.Random) -> bytes:
    """Return a head with up to three of its parts missing, or of other sizes, types or values."""
    parts = head.copy()
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        with suppress(IndexError):  # nothing of the kind is left
            chance.choice(DAMAGES)(parts, chance)
    content, kind = parts.content(), chance.random()
    if kind < 0.05:
        return content[: chance.randrange(8, len(content))]
    return damaged(content, chance) if kind < 0.1 else content


def _without_tensor(parts: Parts, chance: random.Random) -> None:
    del parts.tensors[chance.choice([*parts.tensors])]


def _without_entry(parts: Parts, chance: random.Random) -> None:
    del parts.entries[_key(parts, chance)]


def _other_size(parts: Parts, chance: random.Random) -> None:
    """Change a size of a tensor; usually its data is as long as that."""
    tensor = chance.choice([*parts.tensors.values()])
    place = chance.randrange(len(tensor.shape))
    size = tensor.shape[place]
    others = [size // 2, size + 1, size + 32, size * 2, 1, 32, 64, 320, 0, chance.choice(EDGES)]
    tensor.shape[place] = chance.choice(others)
    if chance.random() < 0.1:
        tensor.shape = chance.choice([tensor.shape[::-1], [*tensor.shape, 2], tensor.shape[:1]])
    _fill(tensor)


def _other_type(parts: Parts, chance: random.Random) -> None:
    tensor = chance.choice([*parts.tensors.values()])
    tensor.stored = chance.choice([*STORED_TYPES, 0, 0, 1, 1, 8, 27, 30, 99])
    _fill(tensor)


def _other_names(parts: Parts, chance: random.Random) -> None:
    """Give two tensors each other's names."""
    one, other = chance.sample([*parts.tensors], 2)
    tensors = parts.tensors
    tensors[one], tensors[other] = tensors[other], tensors[one]


def _other_value(parts: Parts, chance: random.Random) -> None:
    """Give a key another number, a list of them, a text or nothing, of any type."""
    key = _key(parts, chance)
    text = key.encode()
    old = parts.entries[key][8 + len(text) :]
    number = chance.choice([*EDGES, 3, 4, 5, 16, 32, 64, 320])
    is_small = old[:4] in {struct.pack("<I", kind) for kind in (4, 5)}
    if is_small and chance.random() < 0.6:
        value = old[:4] + struct.pack("<I", number % 2**32)
    else:
        value = chance.choice(
            [
                struct.pack("<IQ", 10, number),
                struct.pack("<If", 6, chance.choice([0.0, -1.0, 1e30, float("nan")])),
                struct.pack("<IB", 7, number % 2),
                struct.pack("<IQ4s", 8, 4, b"text"),
                _numbers(number % 7, chance),
            ]
        )
    parts.entries[key] = struct.pack("<Q", len(text)) + text + value


def _numbers(count: int, chance: random.Random) -> bytes:
    """Return a list of numbers as the value of a key."""
    values = [chance.choice([0, 1, 2, 3, 4, 5, 63, 319, 2**31 - 1, -1]) for _ in range(count)]
    return struct.pack(f"<IIQ{count}i", 9, 5, count, *values)


def _key(parts: Parts, chance: random.Random) -> str:
    """Return a key, seldom one of the vocabulary's many."""
    own = [key for key in parts.entries if not key.startswith(("tokenizer.", "general."))]
    return chance.choice(own if own and chance.random() < 0.8 else [*parts.entries])


def _fill(tensor: _Tensor) -> None:
    """Make a tensor's data as long as its sizes and its type say, unless that is very long."""
    kind, count = STORED_TYPES.get(tensor.stored), 1
    for size in tensor.shape:
        count *= size
    if kind and 0 <= count <= MOST_VALUES:
        needed = count // kind.num_values * kind.num_bytes
        tensor.data = (tensor.data + bytes(needed))[:needed]


DAMAGES = (
    *(_without_tensor, _without_entry, _other_size, _other_size, _other_type, _other_names),
    *(_other_value, _other_value),
)
