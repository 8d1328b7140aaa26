"""Equal seed and equal `system_fingerprint` mean an equal text."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from server.conftest import StartServer
from specchat.engine.answer_starts import NO_EXACT_DRAFT
from specchat.passes import exact_passes, exactness_measurement
from specchat.server import served_answer

QUESTION = "What is speculative decoding, and what does it do on a small machine like this one?"
SEEDED: dict[str, Any] = {
    "seed": 11, "temperature": 0.9, "max_tokens": 40, "ignore_eos": True,
    "logprobs": True, "top_logprobs": 3,
}  # fmt: skip
"""Log probabilities show any difference of the logits, whether or not it decides a token."""


def test_a_request_with_a_seed_repeats(start_server: StartServer) -> None:
    """Read or cached, after others that begin alike, with drafts of any length and with none.

    Which drafts are exact is measured before the first one, and the fingerprint is that of all.
    """
    server = start_server(learn=False)
    first = server.chat(QUESTION, **SEEDED)
    assert first["system_fingerprint"].startswith("fp_")
    reply = first
    for length in ("auto", 0, 1, 2, 5, 9):
        for other in (QUESTION, QUESTION[:40], "What is it?"):
            server.chat(other, max_tokens=9)
            reply = server.chat(QUESTION, **SEEDED, draft_length=length)
            assert reply["choices"] == first["choices"], (length, other)
            assert reply["system_fingerprint"] == first["system_fingerprint"]
        assert length in ("auto", 0) or reply["timings"]["draft_n"]


def test_an_exact_request_is_drafted(start_server: StartServer) -> None:
    """The first one, too: which drafts are exact is measured before it."""
    server = start_server(learn=False)
    for _ in range(2):
        reply = server.chat(QUESTION, temperature=0, max_tokens=40, exact="on", draft_length=4)
        assert reply["timings"]["draft_n"]


def test_where_no_draft_is_exact_the_fingerprint_promises_nothing(
    start_here: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exact answer, or one without drafts, repeats there; the former says why it drafts none."""
    monkeypatch.setattr(exactness_measurement, "longest_here", lambda *_: (1, 1))
    server = start_here(learn=False)
    reply = server.chat(QUESTION, **SEEDED, draft_length=3)
    assert reply["system_fingerprint"] is None
    assert reply["timings"]["draft_n"]
    names = set()
    for fields in ({"exact": "on"}, {"drafter": "none"}, {"draft_length": 0}, {"exact": "on"}):
        server.chat(QUESTION[:30], max_tokens=5)
        reply = server.chat(QUESTION, **SEEDED, **fields)
        names.add((reply["system_fingerprint"], str(reply["choices"])))
        if "exact" in fields:
            assert NO_EXACT_DRAFT in reply["specchat"].values()
    assert len(names) == 1
    assert None not in next(iter(names))


def test_a_stream_has_one_fingerprint(
    start_here: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says must be measured first, and the stream has only comments until then."""
    measure = exact_passes.longest_here

    def slowly(*given: Any) -> Any:
        time.sleep(1)
        return measure(*given)

    monkeypatch.setattr(exactness_measurement, "longest_here", slowly)
    monkeypatch.setattr(served_answer, "SECONDS_TO_COMMENT", 0.1)
    server = start_here(learn=False)
    body = {"prompt": QUESTION, "echo": True, "stream": True, "seed": 3, "max_tokens": 5}
    with server.client.stream("POST", "/v1/completions", json=body) as reply:
        first, *lines = [line for line in reply.iter_lines() if line]
    assert first.startswith(": ")
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert len(events) > 1
    (fingerprint,) = {each["system_fingerprint"] for each in events}
    assert fingerprint.startswith("fp_")
