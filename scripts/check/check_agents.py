"""Let coding agents use `specchat serve`, and check that each calls a tool and then answers.

    python scripts/check/check_agents.py [--clients FOLDER] [--pair NAME] [--seconds 300]

Codex, Claude Code and opencode run without a person, each with the set-up that `specchat serve
--for` prints, with a key, and with no way beyond this machine. FOLDER is one where npm has
installed them; otherwise they are installed into a temporary folder, which needs a network. The
model is a parrot that asks for a file and says what is in it; with NAME it is that pair, and any
answer will do. Prints a table, and exits with 1 if an agent failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from scripts.support.agent_parrot import write_agent_parrot
from scripts.support.server_process import ServerProcess
from specchat.server.client_setups import Served, setup_text

PACKAGES = {
    "codex": "@openai/codex",
    "claude": "@anthropic-ai/claude-code",
    "opencode": "opencode-ai",
}
SCRIPTS = frozenset({"@anthropic-ai/claude-code", "opencode-ai"})
"""Packages that put their program in place after they are unpacked."""
QUESTION = "Which word is in notes.txt?"
WORD, NOTES = "pomegranate", "notes.txt"
KEY = "agents-only"
CONTEXT = 32_768
SECONDS = 300
"""How long an agent may take, unless told otherwise."""
NOWHERE = "http://127.0.0.1:9"
"""A proxy that is not there: nothing but this machine can be reached."""
KEPT = frozenset({"PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT"})
SHOWN = 60


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an agent fared; `problem` is empty if all was well."""

    answer: str
    seconds: float
    problem: str = ""


class Agents:
    """Installed agents, and the folder that they work in."""

    def __init__(self, programs: Path, folder: Path, seconds: float) -> None:
        """Prepare a folder with a file to read; `programs` is where npm put the agents."""
        self._programs, self._folder, self._seconds = programs, folder, seconds
        self.work = folder / "work"
        self.work.mkdir()
        (self.work / NOTES).write_text(f"The word is {WORD}.\n", "utf-8")

    def run(self, name: str, served: Served) -> Outcome:
        """Let an agent answer the question."""
        home = self._folder / name
        home.mkdir()
        command = self._prepared(name, home, setup_text(name, served))
        began = monotonic()
        try:
            done = subprocess.run(
                command,
                cwd=self.work,
                env=self._environment(home, served),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self._seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome("", self._seconds, f"no answer in {self._seconds:g} s")
        answer, seconds = done.stdout.strip(), monotonic() - began
        problem = f"exit {done.returncode}: {done.stderr[-500:]}" if done.returncode else ""
        return Outcome(answer, seconds, problem)

    def _prepared(self, name: str, home: Path, setup: str) -> list[str]:
        """Set an agent up as a user would, and return the command that asks it."""
        program = str(self._programs / name)
        if name == "codex":
            (home / ".codex").mkdir()
            (home / ".codex" / "config.toml").write_text(setup, "utf-8")
            switches = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
            return [program, "exec", *switches, QUESTION]
        if name == "claude":
            exports = [line for line in setup.splitlines() if line.startswith("export ")]
            return ["sh", "-c", "\n".join([*exports, 'exec "$0" -p "$1"']), program, QUESTION]
        (self.work / "opencode.json").write_text(setup, "utf-8")
        return [program, "run", QUESTION]

    @staticmethod
    def _environment(home: Path, served: Served) -> dict[str, str]:
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), NOWHERE)
        return {
            **{name: value for name, value in os.environ.items() if name in KEPT},
            **proxies,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            "HOME": str(home),
            "SPECCHAT_API_KEY": served.key,
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        }


def install(folder: Path, names: Sequence[str]) -> Path:
    """Install agents with npm; return the folder of their programs."""
    wanted = [PACKAGES[name] for name in names]
    subprocess.run(["npm", "install", *wanted], cwd=folder, check=True)
    if approved := [each for each in wanted if each in SCRIPTS]:
        subprocess.run(["npm", "install-scripts", "approve", *approved], cwd=folder, check=False)
        subprocess.run(["npm", "rebuild"], cwd=folder, check=True)
    return folder / "node_modules" / ".bin"


def model_words(pair: str | None, folder: Path, work: Path) -> list[str]:
    """Return the options of the model to serve."""
    if pair:
        return ["--pair", pair, "--ctx", "0"]
    calls: Mapping[str, Mapping[str, str]] = {
        "exec_command": {"cmd": f"cat {NOTES}"},
        "Read": {"file_path": str(work / NOTES)},
        "read": {"filePath": str(work / NOTES)},
    }
    path = write_agent_parrot(folder / "parrot.gguf", calls, WORD, context_length=CONTEXT)
    return ["--target", str(path), "--ctx", str(CONTEXT)]


def served_by(server: ServerProcess) -> Served:
    """Return what agents must know of a server."""
    request = urllib.request.Request(  # noqa: S310  # an address of this machine
        f"{server.address}/v1/models", headers={"x-api-key": KEY}
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as reply:  # noqa: S310
        model = json.load(reply)["data"][0]
    return Served(server.address, KEY, model["id"], model["context_length"])


def judged(outcome: Outcome, pair: str | None) -> Outcome:
    """Return an outcome with the problem that its answer shows."""
    is_right = bool(outcome.answer) if pair else f"It says {WORD}." in outcome.answer
    if outcome.problem or is_right:
        return outcome
    return Outcome(outcome.answer, outcome.seconds, "not the answer that the model gave")


def main() -> int:
    """Run every agent and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=Path)
    parser.add_argument("--pair")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--agents", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="specchat-agents-") as name:
        folder = Path(name)
        if arguments.clients:
            programs = arguments.clients.resolve() / "node_modules" / ".bin"
        else:
            programs = install(folder, arguments.agents)
        agents = Agents(programs, folder, arguments.seconds)
        words = model_words(arguments.pair, folder, agents.work)
        outcomes: dict[str, Outcome] = {}
        with ServerProcess(folder / "state", [*words, "--key", KEY]) as server:
            served = served_by(server)
            for agent in arguments.agents:
                outcomes[agent] = judged(agents.run(agent, served), arguments.pair)
            complaints = server.complaints()
    print("| agent | seconds | verdict | answer |\n| --- | ---: | --- | --- |")
    for agent, each in outcomes.items():
        said = " ".join(each.answer.split())[-SHOWN:]
        print(f"| {agent} | {each.seconds:.0f} | {each.problem or 'pass'} | {said} |")
    for line in complaints:
        print(line)
    return int(bool(complaints) or any(each.problem for each in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
