"""Targets and drafts that read the inputs of their layers: each kind with each architecture."""

from pathlib import Path
from typing import Any

from scripts.support.tiny_gguf.heads import write_with_head

TARGETS = (
    *("llama", "nanbeige", "gpt-oss", "minimax-m2", "gemma4", "mimo2"),
    *("qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe"),
    *("hunyuan-dense", "hunyuan_vl", "lfm2", "lfm2moe", "bailingmoe3", "nemotron_h_moe"),
    *("nemotron_h", "minimax-01", "muse-glimmer", "deepseek4"),
)
"""Architectures that give the inputs of their layers."""
DRAFTS = ("EAGLE-3", "DFlash", "DFlash 2", "DSpark")
WITH_OWN_HEAD = (
    *("qwen3next", "qwen35", "qwen35moe", "glm4moe", "hy_v3", "cohere2moe"),
    *("deepseek2", "deepseek32", "glm-dsa", "bailingmoe3", "nemotron_h_moe", "gemma4"),
    *("mimo2", "step35", "deepseek4"),
)
"""Architectures with a prediction head of their own; Gemma 4's is an assistant."""
WITH_HEADS_IN_TURN = ("hy_v3", "mimo2", "step35")
"""Architectures that may have several."""
OWN_HEAD_CASES = (
    *(f"{target} with MTP" for target in WITH_OWN_HEAD),
    *(f"{target} with MTP in turn" for target in WITH_HEADS_IN_TURN),
)
CASES = (
    *(f"{target} with {draft}" for draft in DRAFTS for target in TARGETS),
    *("qwen3 with DFlash window", "qwen35 with DFlash window"),
)
"""Those with a window have all their layers slide one, and positions of several parts."""
PROMPT = "Hello world, how are you"
DRAFT_LENGTH = 3
NOISE = 0.05


def write_case(folder: Path, case: str, noise: float = NOISE) -> dict[str, Any]:
    """Write the files of a case, unless they are there, and return them by role."""
    target, _, draft = case.partition(" with ")
    parts = {"target": "trunk", "draft": "head"}
    paths = {role: folder / f"{case}-{noise}-{role}.gguf" for role in parts}
    for role, path in paths.items():
        if not path.exists():
            kind = "" if draft.startswith("MTP") else draft
            write_with_head(
                path, target, part=parts[role], noise=noise, draft=kind,
                num_in_turn=DRAFT_LENGTH if draft == "MTP in turn" else 1,
            )  # fmt: skip
    return paths
