"""Use `specchat serve` through OpenAI's package for Node, and check what it returns.

    python scripts/check/check_node_clients.py [--folder FOLDER]

Installs `openai` with npm into a folder outside the repository, a temporary one unless one is given
(where it is already installed, nothing is fetched), and starts a server with the demo pair. Whole
replies and streams of the chat and responses APIs must agree, usage must be there, each error must
be the package's exception for it, and a stream that is given up must free the engine. Exits with 1
otherwise.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.support.server_process import ServerProcess

SCRIPT = """
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2] + "/v1", apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "What is specchat?" }];
const asked = { model: "demo", messages, temperature: 0, max_tokens: 24 };

const names = [];
for await (const model of client.models.list()) names.push(model.id);
assert.ok(names.includes("demo") && names.includes("demo:plain"), names.join());

const whole = await client.chat.completions.create(asked);
assert.equal(whole.usage.completion_tokens, 24);
assert.equal(whole.choices[0].finish_reason, "length");

let text = "", usage = null;
const options = { stream: true, stream_options: { include_usage: true } };
for await (const chunk of await client.chat.completions.create({ ...asked, ...options })) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(text, whole.choices[0].message.content);
assert.equal(usage.completion_tokens, 24);

const spoken = client.chat.completions.stream(asked);
assert.equal((await spoken.finalChatCompletion()).choices[0].message.content, text);

const predicted = await client.chat.completions.create({
  ...asked, prediction: { type: "content", content: text },
});
assert.equal(predicted.choices[0].message.content, text);
assert.equal(typeof predicted.usage.completion_tokens_details.accepted_prediction_tokens, "number");

const response = await client.responses.create({ model: "demo", input: messages, temperature: 0 });
assert.equal(response.status, "completed");
let deltas = "";
const events = { model: "demo", input: messages, temperature: 0, stream: true };
for await (const event of await client.responses.create(events)) {
  if (event.type === "response.output_text.delta") deltas += event.delta;
}
assert.equal(deltas, response.output_text);

await assert.rejects(client.chat.completions.create({ ...asked, temperature: "hot" }), (error) =>
  error instanceof OpenAI.BadRequestError && error.param === "temperature");
await assert.rejects(client.models.retrieve("other"), OpenAI.NotFoundError);

const long = { ...asked, max_tokens: 1500, ignore_eos: true, stream: true };
const left = await client.chat.completions.create(long);
for await (const chunk of left) if (chunk.choices[0]?.delta?.content) break;
const next = await client.chat.completions.create({ ...asked, max_tokens: 1 });
assert.equal(next.usage.completion_tokens, 1);
console.log("openai for Node: all checks passed");
"""


def main() -> int:
    """Install the package, and run the checks against a server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    npm, node = shutil.which("npm"), shutil.which("node")
    if not (npm and node):
        print("Node and npm are needed: install them", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="specchat-node-") as made:
        folder = (arguments.folder or Path(made)).resolve()
        if folder.is_relative_to(Path(__file__).resolve().parents[2]):
            print(f"{folder} is in the repository: name another --folder", file=sys.stderr)
            return 1
        if not (folder / "node_modules" / "openai").is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            words = ("install", "--no-audit", "--no-fund", "--silent", "openai")
            subprocess.run([npm, *words], cwd=folder, check=True)
        return _check(node, folder, Path(made))


def _check(node: str, folder: Path, state: Path) -> int:
    """Run the checks; return the exit code."""
    script = folder / "check.mjs"
    script.write_text(SCRIPT, "utf-8")
    with ServerProcess(state) as server:
        code = subprocess.run([node, str(script), server.address], check=False).returncode
        code = code or server.end()
        complaints = server.complaints()
    print("\n".join(complaints), end="")
    return int(bool(code or complaints))


if __name__ == "__main__":
    sys.exit(main())
