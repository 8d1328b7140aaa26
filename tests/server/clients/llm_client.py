"""Uses the server through the command `llm`: python llm_client.py ADDRESS.

The folder that LLM_USER_PATH names is written as its page on OpenAI-compatible models says.
"""

import os
import sys
from pathlib import Path

from click.testing import CliRunner
from llm.cli import cli

folder = Path(os.environ["LLM_USER_PATH"])
folder.mkdir(parents=True)
(folder / "extra-openai-models.yaml").write_text(
    f"- model_id: here\n  model_name: demo\n  api_base: {sys.argv[1]}/v1\n", "utf-8"
)


def run(*words: str) -> str:
    """Run a command and return what it prints."""
    done = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return str(done.output)


assert "here" in run("models", "list")
WORDS = ("prompt", "-m", "here", "-o", "temperature", "0", "-o", "max_tokens", "12")
streamed = run(*WORDS, "What is specchat?").strip()
assert streamed
assert run(*WORDS, "--no-stream", "What is specchat?").strip() == streamed
assert run(*WORDS, "-c", "And how fast is it?").strip()
assert '"prompt_tokens"' in run("logs", "--json", "-n", "1") or "input_tokens" in run(
    "logs", "--json", "-n", "1"
)
print("done")
