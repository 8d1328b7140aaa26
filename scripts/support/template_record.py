"""What llama-server was recorded to make of templates, and what differs from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.support.template_cases import AUTO, digest, families
from scripts.support.template_check import Checked, Finding, check


def load(path: Path) -> dict[str, Any]:
    """Return what was recorded for each template."""
    templates: dict[str, Any] = json.loads(path.read_text("utf-8"))["templates"]
    return templates


def check_one(name: str, template: str, record: Mapping[str, Any] | None) -> Checked:
    """Check a template, unless the record is of another one or of other texts."""
    family = families()[name]
    texts = [digest(each.text) for each in family.texts]
    if record is None or record["template"] != digest(template):
        detail = "another template than recorded: give --llama-server"
    elif [each["text"] for each in record["texts"]] != texts:
        detail = "other texts than recorded: record them again"
    else:
        return check(name, template, family, record)
    return Checked(name, [Finding("prompt", AUTO, "differs", detail)])


def unexplained(checked: Checked) -> list[Finding]:
    """Return what differs without a known reason."""
    return [each for each in checked.findings if each.verdict == "differs"]
