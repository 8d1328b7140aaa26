"""Record what llama.cpp's own tools make of texts and conversations: a reference for the tests.

The file holds texts and conversations. `llama-tokenize` gives the tokens of each text, and
`llama-server` the prompt of each conversation, its tokens, and, if it has an `answer`, the greedy
answer. Everything recorded is replaced; to add a case, add only what is asked and record again.

    python scripts/lab/build_llama_tools.py --tools llama-server llama-tokenize
    python scripts/lab/record_llama_server.py tests/real_model/llama_server.json \
        --server PATH/llama-server --model PATH/SmolLM2-135M-Instruct.Q4_1.gguf
"""

import argparse
import json
from pathlib import Path
from typing import Any

from scripts.support.tool_record import record


def written(recorded: dict[str, Any]) -> str:
    """Return a record as JSON with a line for each case, so that a difference is easy to read."""
    lines = []
    for name, value in recorded.items():
        if isinstance(value, list):
            rows = ",\n".join("  " + json.dumps(each) for each in value)
            lines.append(f'"{name}": [\n{rows}\n ]')
        else:
            lines.append(f'"{name}": {json.dumps(value)}')
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def main() -> None:
    """Record the cases of a file again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path, help="the cases, and where they are recorded")
    parser.add_argument("--server", type=Path, required=True, help="llama-server")
    parser.add_argument("--model", type=Path, required=True, help="the GGUF file")
    options = parser.parse_args()
    asked = json.loads(options.file.read_text("utf-8"))
    recorded = record(asked, options.server.resolve(), options.model.resolve())
    options.file.write_text(written(recorded), "utf-8")


if __name__ == "__main__":
    main()
