"""A user's home folder in which all texts and names are hostile."""

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from hostile_text import HOSTILE, IN_FILE_NAME, IN_TOML, SEQUENCES
from local_folders import put, put_in_hub
from scripts.support.tiny_gguf import CHAT_TEMPLATE, Vocabulary, write_model
from specchat.chat.conversation import Attachment
from specchat.chat.store import Store, default_path

WORDS = Vocabulary(size=900, endings=SEQUENCES)
"""Most of its tokens are hostile, and so is most of what a model with random weights writes."""
METADATA = {
    "general.license": HOSTILE,
    "general.license.link": HOSTILE,
    "general.basename": HOSTILE,
    f"key.{HOSTILE}": HOSTILE,
}


@dataclass(frozen=True, slots=True)
class World:
    """The hostile files of a user: a pair, one with a wrong template, one that does not load."""

    home: Path
    target: str
    draft: str
    template: str
    unknown: str

    @property
    def config(self) -> Path:
        """The folder of settings."""
        return self.home / "config" / "specchat"


def write_models(folder: Path) -> tuple[Path, ...]:
    """Write the hostile models."""
    named = METADATA | {"general.name": HOSTILE}
    raising = Vocabulary(
        size=900, endings=SEQUENCES, chat_template=f"{{{{ raise_exception('{HOSTILE}') }}}}"
    )
    templated = Vocabulary(size=900, endings=SEQUENCES, chat_template=CHAT_TEMPLATE + HOSTILE)
    paths = [folder / f"{kind} {IN_FILE_NAME}.gguf" for kind in ("target", "draft", "template")]
    write_model(paths[0], "llama", vocabulary=templated, metadata=named)
    write_model(paths[1], "llama", vocabulary=WORDS, metadata=named, num_kept_layers=2)
    write_model(paths[2], "llama", vocabulary=raising, metadata=named)
    content = paths[1].read_bytes()
    unknown = folder / f"unknown {IN_FILE_NAME}.gguf"
    unknown.write_bytes(content.replace(b"llama", b"\x1b]0;\x07"))
    return (*paths, unknown)


def make_world(home: Path, models: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a home folder that is hostile wherever it can be."""
    for name in ("config", "data", "state", "cache"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(home / name))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(home / "hub"))
    put_in_hub(home / "hub", "org/model", f"local {IN_FILE_NAME}.gguf", models[0].read_bytes())
    put(home / "cache" / "llama.cpp" / f"other {IN_FILE_NAME}.gguf", models[1].read_bytes())
    found = World(home, *map(str, models))
    target, draft = (json.dumps(path) for path in (found.target, found.draft))
    pair = f'description = "{IN_TOML}"\nlicence = "{IN_TOML}"\ntarget = {target}\ndraft = {draft}\n'
    catalogue = f'[pair.own]\n{pair}[pair."{IN_TOML}"]\n{pair}'
    put(found.config / "models.toml", catalogue.encode())
    put(found.config / "config.toml", f'[chat]\nsystem_prompt = "{IN_TOML}"\n'.encode())
    _talk()
    return found


def _talk() -> None:
    """Store a conversation."""
    with Store(default_path()) as store:
        begun = store.begin(HOSTILE, HOSTILE)
        files = [Attachment(HOSTILE, HOSTILE)]
        question = store.add(begun.id, "user", HOSTILE, attachments=files)
        answer = store.add(begun.id, "assistant", "", question.id)
        figures = {"decode_s": 2.0, "generated_tokens": 9, "drafter": HOSTILE, "finish": HOSTILE}
        speed = {"tokens_per_second": 5.0, "drafted": 5, "accepted": 4, "model": HOSTILE}
        store.write(answer.id, HOSTILE, finish="stop", statistics={**figures, **speed})
    with closing(sqlite3.connect(default_path())) as database, database:
        database.execute("UPDATE conversation SET title = ?", [HOSTILE])  # as no chat writes it
