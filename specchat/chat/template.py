"""Rendering a model's own chat template, which comes with the file and is not trusted."""

import atexit
import json
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from specchat.chat.conversation import ChatMessage
from specchat.chat.safe_text import harmless
from specchat.errors import TemplateError
from specchat.llama.child_process import child_python

LONGEST_TEMPLATE = 128 * 1024
"""Characters; those of real models have fewer than 40 000."""
MOST_SECONDS = 2.0
"""Rendering takes milliseconds, thousands of messages a tenth of a second."""
ADVICE = "use --raw to ask without the template"


class TemplateProcess:
    """The process that renders templates; started when needed, and again after it ended.

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

    def ask(self, request: dict[str, Any]) -> dict[str, str]:
        """Return its answer; the process ends without one when a limit is exceeded."""
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            process, answer = self.start(), b""
            try:
                with suppress(OSError):
                    process.stdin.write(line)  # type: ignore[union-attr]  # both are pipes
                    process.stdin.flush()  # type: ignore[union-attr]
                    answer = process.stdout.readline()  # type: ignore[union-attr]
            finally:  # after an interrupt too: a late answer must not be taken for the next one
                if not answer:
                    self.close()
        ended = {"error": f"it takes more than {request['seconds']:g} s or too much memory"}
        return json.loads(answer) if answer else ended

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.communicate()


TEMPLATES = TemplateProcess()
"""Starting it early keeps the first conversation from waiting for it."""
atexit.register(TEMPLATES.close)


def render(template: str, messages: Sequence[ChatMessage], *, bos: str = "", eos: str = "") -> str:
    """Return a conversation as text, up to where the assistant's next answer begins.

    The template runs in another process, in Jinja's immutable sandbox with limits of time, memory
    and output, and with the functions that templates of Hugging Face models expect. Raises
    TemplateError if it fails or refuses the conversation.
    """
    if len(template) > LONGEST_TEMPLATE:
        raise TemplateError(
            f"the model's chat template is too long ({len(template)} characters, at most"
            f" {LONGEST_TEMPLATE}): {ADVICE}"
        )
    variables = {
        "messages": list(messages),
        "add_generation_prompt": True,
        "bos_token": bos,
        "eos_token": eos,
    }
    answer = TEMPLATES.ask({"template": template, "variables": variables, "seconds": MOST_SECONDS})
    if "error" in answer:
        reason = harmless(answer["error"])
        raise TemplateError(f"the model's chat template failed ({reason}): {ADVICE}")
    return answer["text"]
