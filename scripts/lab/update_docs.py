"""Write what comes from the code: tables in specchat/docs, and the manual page.

python scripts/lab/update_docs.py          # rewrites them; a test fails if they are stale
"""

from __future__ import annotations

from pathlib import Path

from scripts.support.generated_docs import updated
from scripts.support.man_page import man_page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "specchat" / "docs"


if __name__ == "__main__":
    for path in sorted(DOCS.glob("*.md")):
        path.write_text(updated(path.read_text("utf-8")), "utf-8")
    (DOCS / "specchat.1").write_text(man_page(), "utf-8")
