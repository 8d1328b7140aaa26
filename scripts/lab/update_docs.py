"""Write the tables in specchat/docs that come from the code: keys, slash commands, settings.

python scripts/lab/update_docs.py          # rewrites them; a test fails if they are stale
"""

from __future__ import annotations

from pathlib import Path

from scripts.support.generated_docs import updated

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "specchat" / "docs"


if __name__ == "__main__":
    for path in sorted(DOCS.glob("*.md")):
        path.write_text(updated(path.read_text("utf-8")), "utf-8")
