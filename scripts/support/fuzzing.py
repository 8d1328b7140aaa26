"""GGUF files damaged at random and chat templates of random fragments, and how they end."""

import random
import select
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from specchat.errors import SpecchatError, TemplateError
from specchat.formats.template import render
from specchat.gguf.model_files import read_whole_model
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
    """Load damaged files in child processes, which are started again where they end."""
    results: Counter[str] = Counter()
    path = folder / "damaged.gguf"
    loader = started()
    for _ in range(count):
        path.write_bytes(damaged(model, chance))
        assert loader.stdin is not None  # noqa: S101  # both are pipes
        assert loader.stdout is not None  # noqa: S101
        loader.stdin.write(f"{path}\n".encode())
        loader.stdin.flush()
        ready, _, _ = select.select([loader.stdout], [], [], MOST_SECONDS)
        answer = loader.stdout.readline().decode().strip() if ready else "slow"
        results[answer or "the child process ended"] += 1
        if not ready or not answer:
            loader.kill()
            loader.communicate()
            loader = started()
    loader.kill()
    loader.communicate()
    return results


def started() -> subprocess.Popen[bytes]:
    """Start a child process that loads the files named on its standard input."""
    (python, *_), environment = child_python("unused")
    return subprocess.Popen(
        [python, "-P", "-c", LOADER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
    )  # fmt: skip
