"""Rendering a model's chat template, which comes with the file and is not trusted."""

import atexit
import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from specchat.chat.safe_text import harmless
from specchat.errors import TemplateError
from specchat.llama.child_process import child_python

LONGEST_TEMPLATE = 128 * 1024
"""Characters; those of real models have fewer than 40 000."""
MOST_SECONDS = 2.0
"""Rendering takes milliseconds, thousands of messages a tenth of a second."""
Variables: TypeAlias = Mapping[str, Any]
"""The variables of a template: the messages, tools, switches and so on."""
ADVICE = "use --raw to ask without the template"


class TemplateProcess:
    """The process that renders templates; started when needed, and again after it has ended.

    It ends with this process, or when a template exceeds its limits. Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    def start(self) -> subprocess.Popen[bytes]:
        """Return the process, which may still be starting."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self.close()
                command, environment = child_python("specchat.chat.sandbox")
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                )
            return self._process

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request; empty if the process exceeded a limit and ended."""
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            process, answer = self.start(), b""
            try:
                with suppress(OSError):
                    process.stdin.write(line)  # type: ignore[union-attr]  # both are pipes
                    process.stdin.flush()  # type: ignore[union-attr]
                    answer = process.stdout.readline()  # type: ignore[union-attr]
            finally:  # after an interrupt too, or a late answer would be taken for the next one
                if not answer:
                    self.close()
        found: dict[str, Any] = json.loads(answer) if answer else {}
        return found

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.communicate()


TEMPLATES = TemplateProcess()
"""Started early, so that the first conversation need not wait for it."""
atexit.register(TEMPLATES.close)


def render(template: str, variables: Variables) -> str:
    """Return the text that a template renders to.

    The template runs in another process, in Jinja's immutable sandbox with limits of time, memory
    and output, and with the functions that templates of Hugging Face models expect. Raises
    TemplateError if it fails or refuses the conversation.
    """
    (rendered,) = render_all(template, [variables])
    if isinstance(rendered, TemplateError):
        raise rendered
    return rendered


def render_all(template: str, wanted: Sequence[Variables]) -> list[str | TemplateError]:
    """Return the text for each of several sets of variables, or the error it fails with."""
    answer = _ask(template, wanted)
    if "answers" not in answer:
        reason = f"it exceeded {MOST_SECONDS:g} s or the memory limit"
        return [_failure(reason) for _ in wanted]
    return [
        each["text"] if "text" in each else _failure(each["error"]) for each in answer["answers"]
    ]


def variables_of(template: str) -> dict[str, list[str | int]]:
    """Return the variables a template uses, each with the constants it is compared with."""
    uses: dict[str, list[str | int]] = _ask(template, (), wants_uses=True).get("uses", {})
    return uses


def _ask(template: str, wanted: Sequence[Variables], *, wants_uses: bool = False) -> dict[str, Any]:
    if len(template) > LONGEST_TEMPLATE:
        raise TemplateError(
            f"the model's chat template is too long ({len(template)} characters, at most"
            f" {LONGEST_TEMPLATE}): {ADVICE}"
        )
    request = {"template": template, "variables": list(wanted), "wants_uses": wants_uses}
    return TEMPLATES.ask({**request, "seconds": MOST_SECONDS})


def _failure(reason: str) -> TemplateError:
    return TemplateError(f"the model's chat template failed ({harmless(reason)}): {ADVICE}")
