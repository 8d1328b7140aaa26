"""What a caller of the library writes: type checkers accept all of it."""

from __future__ import annotations

from pathlib import Path

from specchat import Engine, connect

with Engine.load("target.gguf", "draft.gguf", ctx=4096, threads=None, process=True) as engine:
    for chunk in engine.generate("Once", max_tokens=9, temperature=0.8, seed=7, stop=["."]):
        print(chunk.text, chunk.origins)
    answer = engine.chat([{"role": "user", "content": "Hi"}], top_k=0, draft_length="auto")
    text: str = "".join(chunk.text for chunk in answer)
    rate: float = engine.stats.acceptance_rate

with Engine.load(
    target=Path("target.gguf"),
    draft=None,
    gpu_layers=0,
    cache_type="q8_0",
    tensor_split=(3.0, 1.0),
    on_progress=lambda stage, share: stage == "target" and share < 1,
) as engine:
    engine.generate([1, 2, 3], drafter="suffix", draft_length=4, logit_bias={5: -1.0})
    engine.generate(prompt="Once", on_progress=lambda stage, share: None)

with connect("http://127.0.0.1:8642", model="m", key="k") as engine:
    answer = engine.chat([{"role": "user", "content": "Hi"}], max_tokens=3)
