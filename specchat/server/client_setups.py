"""How to point clients at a server: texts to paste, with its address, key and model filled in."""

import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from specchat.errors import InvalidOption
from specchat.safe_text import in_one_line

if TYPE_CHECKING:
    from specchat.server.service import Service

NO_KEY = "none"
"""What clients send that insist on a key, where the server needs none."""
KEY_VARIABLE = "SPECCHAT_API_KEY"
WILDCARDS = ("//0.0.0.0:", "//[::]:")
"""Addresses that mean every one of this machine's, so that none can be called by it."""


@dataclass(frozen=True, slots=True)
class Served:
    """What clients must know: the address without a path, the key ("" for none), the model.

    Some leave images out of requests to a model unless they know that it `takes_images`.
    """

    address: str
    key: str
    model: str
    context: int
    takes_images: bool = False

    @property
    def is_socket(self) -> bool:
        """Whether the address is a Unix socket."""
        return self.address.startswith("unix:")

    @property
    def url(self) -> str:
        """The address to call from this machine."""
        url = self.address
        for wildcard in WILDCARDS:
            url = url.replace(wildcard, "//127.0.0.1:")
        return url

    @property
    def base_url(self) -> str:
        """The address of OpenAI's APIs."""
        return f"{self.url}/v1"

    @property
    def some_key(self) -> str:
        """The key, or a word for clients that insist on one."""
        return self.key or NO_KEY


def served_at(address: str, key: str, service: "Service") -> Served:
    """Return what clients must know now of a service at an address."""
    facts = service.facts
    return Served(address, key, service.name, facts.context, facts.takes_images)


SetUp: TypeAlias = Callable[[Served], str]


def setup_text(client: str, served: Served) -> str:
    """Return what to paste to use a client with a server. Raises InvalidOption for a socket."""
    if served.is_socket:
        raise InvalidOption(
            f"{client} cannot call a Unix socket: serve on a port, without --socket"
        )
    return SETUPS[client](served)


def _openai(served: Served) -> str:
    base_url, key, model = map(_quoted, (served.base_url, served.some_key, served.model))
    return f"""\
# openai for Python: pip install openai
from openai import OpenAI

client = OpenAI(base_url={base_url}, api_key={key})
reply = client.chat.completions.create(
    model={model},
    messages=[{{"role": "user", "content": "Why is the sky blue?"}}],
)
print(reply.choices[0].message.content)
"""


def _codex(served: Served) -> str:
    key = f"env_key = {_quoted(KEY_VARIABLE)}\n" if served.key else ""
    before = f"# First: {_environment({KEY_VARIABLE: served.key})}\n" if served.key else ""
    return f"""\
# Codex: at the top of ~/.codex/config.toml, then: codex
{before}model = {_quoted(served.model)}
model_provider = "specchat"
model_context_window = {served.context}

[model_providers.specchat]
name = "specchat"
base_url = {_quoted(served.base_url)}
wire_api = "responses"
{key}"""


def _claude(served: Served) -> str:
    values = {
        "ANTHROPIC_BASE_URL": served.url,
        "ANTHROPIC_AUTH_TOKEN": served.some_key,
        "ANTHROPIC_MODEL": served.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": served.model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return f"# Claude Code: in a shell\n{_environment(values)}\nclaude\n"


def _opencode(served: Served) -> str:
    model: dict[str, Any] = {
        "name": served.model,
        "limit": {"context": served.context, "output": served.context // 2},
    }
    if served.takes_images:
        kinds = {"input": ["text", "image"], "output": ["text"]}
        model |= {"attachment": True, "modalities": kinds}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "specchat",
        "options": {"baseURL": served.base_url, "apiKey": served.some_key},
        "models": {served.model: model},
    }
    config: dict[str, Any] = {
        "model": f"specchat/{served.model}",
        "provider": {"specchat": provider},
    }
    return (
        "// opencode: save as opencode.json in your project, or ~/.config/opencode/opencode.json\n"
        f"{json.dumps(config, indent=2)}\n"
    )


def _llm(served: Served) -> str:
    name = "specchat"
    needs_key = f"  api_key_name: {name}\n" if served.key else ""
    before = f"# First: llm keys set {name} --value {_shell(served.key)}\n" if served.key else ""
    vision = "  vision: true\n" if served.takes_images else ""
    return f"""\
# llm: add to extra-openai-models.yaml in the folder of: llm logs path
# Then: llm -m {name} 'Why is the sky blue?'
{before}- model_id: {name}
  model_name: {_quoted(served.model)}
  api_base: {_quoted(served.base_url)}
{needs_key}{vision}"""


def _aider(served: Served) -> str:
    values = {"OPENAI_API_BASE": served.base_url, "OPENAI_API_KEY": served.some_key}
    model = _shell(f"openai/{served.model}")
    return f"# aider: in a shell\n{_environment(values)}\naider --model {model}\n"


SETUPS: Mapping[str, SetUp] = {
    "openai": _openai,
    "codex": _codex,
    "claude": _claude,
    "opencode": _opencode,
    "llm": _llm,
    "aider": _aider,
}
"""The set-up of each client, by its name."""


def _quoted(text: str) -> str:
    """Return a text in double quotes, as Python, TOML and YAML read it alike."""
    return json.dumps(in_one_line(text), ensure_ascii=False)


def _shell(text: str) -> str:
    return shlex.quote(in_one_line(text))


def _environment(values: Mapping[str, str]) -> str:
    """Return commands that set variables: for PowerShell on Windows, else for a POSIX shell."""
    if os.name == "nt":
        quoted = {name: in_one_line(text).replace("'", "''") for name, text in values.items()}
        return "\n".join(f"$env:{name} = '{text}'" for name, text in quoted.items())
    return "\n".join(f"export {name}={_shell(text)}" for name, text in values.items())
