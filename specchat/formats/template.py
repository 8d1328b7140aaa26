"""Rendering a model's chat template, which comes with the model file and is not trusted."""

import atexit
import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from specchat.errors import TemplateError
from specchat.safe_text import harmless
from specchat.system.python_child import child_python

LONGEST_TEMPLATE = 128 * 1024
"""The most characters of a template; those of real models have fewer than 40,000."""
MOST_SECONDS = 2.0
"""Rendering takes milliseconds, or a tenth of a second for thousands of messages."""
Variables: TypeAlias = Mapping[str, Any]
"""Values for the variables of a template: messages, tools, switches and so on."""
ADVICE = "use --raw to ask without the template"


class TemplateProcess:
    """The process that renders templates; started when needed, and restarted after it has ended.

    It ends with this process, or when a template exceeds a limit. Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    def start(self) -> subprocess.Popen[bytes]:
        """Return the process, which may still be starting."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self.close()
                command, environment = child_python("specchat.formats.sandbox")
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
            finally:  # on interrupts too, or the late answer would be read as the next one
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
"""Can be started early, so that the first conversation does not wait for it."""
atexit.register(TEMPLATES.close)


def render(template: str, variables: Variables) -> str:
    """Return the text that a template renders.

    The template runs in another process, in Jinja's immutable sandbox, with limits on time, memory
    and output, and with the functions that Hugging Face's templates expect. Raises TemplateError if
    the template fails or refuses the conversation.
    """
    (rendered,) = render_all(template, [variables])
    if isinstance(rendered, TemplateError):
        raise rendered
    return rendered


def render_all(template: str, wanted: Sequence[Variables]) -> list[str | TemplateError]:
    """Return the rendered text, or the error, for each of several sets of variables."""
    answer = _ask(template, wanted)
    if "answers" not in answer:
        reason = f"it exceeded {MOST_SECONDS:g} s or the memory limit"
        return [_failure(reason) for _ in wanted]
    return [
        each["text"] if "text" in each else _failure(each["error"]) for each in answer["answers"]
    ]


def variables_of(template: str) -> dict[str, list[str | int]]:
    """Return the variables that a template uses, each with the constants it is compared with."""
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
