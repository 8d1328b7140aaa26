"""`/metrics`: what it adds up, under which names, and the dashboard that reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.conftest import Running, StartServer
from specchat.docs import DASHBOARD, read
from specchat.server.guard import Access
from specchat.sharing.ticket_line import MOST_IN_TURN

KEY = "a-key"
QUESTION = "What is specchat?"
BY, LEGEND = re.compile(r"\bby \(([\w, ]+)\)"), re.compile(r"{{(\w+)}}")
METRIC = re.compile(r"\b(?:specchat|vllm):\w+")


@dataclass
class Figures:
    """The samples of a reply of `/metrics`, and the names in it."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]

    @property
    def names(self) -> set[str]:
        """The names of all samples."""
        return {name for name, _ in self.samples}

    def labels(self, names: set[str]) -> set[str]:
        """Return the labels that samples of these names have."""
        own = (labels for name, labels in self.samples if name in names)
        return {label for labels in own for label, _ in labels}

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples with this name and these labels."""
        wanted = labels.items()
        found = [value for (each, own), value in self.samples.items()
                 if each == name and wanted <= set(own)]  # fmt: skip
        return sum(found)

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return the sums of a figure's samples by the values of a label; zeros are left out."""
        sums: dict[str, float] = {}
        for (each, labels), value in self.samples.items():
            if each == name and value:
                key = dict(labels)[label]
                sums[key] = sums.get(key, 0) + value
        return sums


def figures_of(server: Running) -> Figures:
    """Return what `/metrics` says now."""
    reply = server.client.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(reply.text)
    found = [sample for family in families for sample in family.samples]
    samples = {(each.name, frozenset(each.labels.items())): each.value for each in found}
    assert len(samples) == len(found)  # no sample is there twice
    return Figures(samples)


DRAFTED: dict[str, Any] = {"drafter": "model", "draft_length": 4}
"""A request's fields for drafts: whether `auto` makes any depends on how busy the machine is."""


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> Running:
    """Return a server that these tests have to themselves."""
    running = start_server(access=Access(key=KEY))
    running.client.headers["authorization"] = f"Bearer {KEY}"
    return running


@pytest.fixture(scope="module", autouse=True)
def first_figures(server: Running) -> Figures:
    """Return what `/metrics` says before the first request."""
    return figures_of(server)


def records_of_stream(server: Running, **fields: Any) -> Iterator[dict[str, Any]]:
    """Yield the records of a streamed reply that has figures."""
    messages = [{"role": "user", "content": QUESTION}]
    body = {"messages": messages, "stream": True, **fields}
    with server.client.stream("POST", "/v1/chat/completions", json=body) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                record = json.loads(line[6:])
                if "timings" in record:
                    yield record


def mixed_requests(server: Running) -> list[dict[str, Any]]:
    """Ask in many ways; return what each answer says of itself, that of choices and checks too."""
    whole = [
        server.chat(QUESTION, temperature=0, max_tokens=20, **DRAFTED),
        server.chat(QUESTION, max_tokens=20, temperature=0),  # from the cache
        server.chat("What is a draft?", max_tokens=24, seed=3),
        server.chat(QUESTION, max_tokens=12, model="demo:plain"),
        server.chat(QUESTION, max_tokens=12, temperature=0, model="demo:suffix"),
        server.chat(QUESTION, max_tokens=40, stop=["spec"], temperature=0),
        server.chat(QUESTION, max_tokens=1),
        server.chat(
            QUESTION,
            max_tokens=40,
            temperature=0,
            prediction={"type": "content", "content": "specchat is a terminal chat"},
        ),
    ]
    several = server.chat(QUESTION, max_tokens=16, n=2, seed=1)
    verified = server.chat(QUESTION, max_tokens=16, temperature=0, verify=True)
    streams = [
        *records_of_stream(server, max_tokens=18, temperature=0),
        *records_of_stream(server, max_tokens=9, n=2),
    ]
    assert len(streams) == 3
    others = [
        server.client.post("/v1/completions", json={"prompt": "specchat is", "max_tokens": 10}),
        server.client.post("/v1/responses", json={"input": QUESTION, "max_output_tokens": 11}),
        server.client.post(
            "/v1/messages",
            json={"max_tokens": 13, "messages": [{"role": "user", "content": QUESTION}]},
        ),
    ]
    check = {"timings": verified["specchat"]["verify"]["plain_timings"], "specchat": {}}
    return [
        *whole,
        *several["choices"],
        verified,
        check,
        *streams,
        *(each.json() for each in others),
    ]


def test_the_figures_of_all_replies_add_up_to_the_metrics(server: Running) -> None:
    """Counts are equal, whatever was asked and however it ended; a failed request counts too."""
    before = figures_of(server)
    answers = mixed_requests(server)
    too_long = {"messages": [{"role": "user", "content": "word " * 9000}]}
    assert server.client.post("/v1/chat/completions", json=too_long).status_code == 400
    after = figures_of(server)

    def grown(name: str, **labels: str) -> float:
        return after.total(name, **labels) - before.total(name, **labels)

    def asked(field: str, of: str = "timings") -> float:
        return sum(float(each[of].get(field, 0)) for each in answers)

    assert grown("vllm:prompt_tokens_total") == asked("prompt_n") + asked("cache_n")
    assert grown("vllm:prefix_cache_hits_total") == asked("cache_n") > 0
    assert grown("vllm:generation_tokens_total") == asked("predicted_n")
    assert grown("vllm:spec_decode_num_draft_tokens_total") == asked("draft_n") > 0
    assert grown("vllm:spec_decode_num_accepted_tokens_total") == asked("draft_n_accepted") > 0
    decode_s, prompt_s = asked("predicted_ms") / 1000, asked("prompt_ms") / 1000
    assert grown("vllm:request_decode_time_seconds_sum") == pytest.approx(decode_s)
    assert grown("vllm:request_prefill_time_seconds_sum") == pytest.approx(prompt_s)
    assert grown("vllm:request_success_total") == len(answers) + 1
    assert grown("vllm:request_success_total", finished_reason="error") == 1
    assert grown("vllm:request_success_total", api="check") == 1
    assert grown("vllm:request_queue_time_seconds_count") == len(answers)  # one was never queued
    assert grown("vllm:time_to_first_token_seconds_count") == len(answers)


def test_vllms_counters_hold_together(server: Running) -> None:
    """Accepted tokens by position add up to all, and no position has more than those before it."""
    server.chat(QUESTION, temperature=0, max_tokens=30, **DRAFTED)
    figures = figures_of(server)
    name = "vllm:spec_decode_num_accepted_tokens"
    by_position = figures.by(f"{name}_per_pos_total", "position")
    counts = [by_position[str(position)] for position in range(len(by_position))]
    drafts = figures.total("vllm:spec_decode_num_drafts_total", engine="0")
    accepted = figures.total(f"{name}_total")
    assert sum(counts) == accepted
    assert [drafts, *counts] == sorted([drafts, *counts], reverse=True)
    assert figures.total("vllm:spec_decode_num_draft_tokens_total") >= accepted
    assert figures.total("vllm:spec_decode_num_drafts_total", model_name="demo") > 0


def test_a_request_that_finds_the_queue_full_is_counted(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As refused, and nowhere else: it has no answer."""
    before = figures_of(server)
    monkeypatch.setattr(server.service.engine._line, "_most_waiting", -MOST_IN_TURN)
    body = {"messages": [{"role": "user", "content": QUESTION}]}
    assert server.client.post("/v1/chat/completions", json=body).status_code == 503
    after = figures_of(server)
    names = ("specchat:requests_refused_total", "vllm:request_success_total")
    assert [after.total(name) - before.total(name) for name in names] == [1, 0]


def test_an_answer_that_its_client_leaves_counts_as_cancelled(server: Running) -> None:
    """It counts once, with the tokens that it had, and nothing is in progress afterwards."""
    before = figures_of(server)
    body = {
        "messages": [{"role": "user", "content": QUESTION}],
        "stream": True, "max_tokens": 400, "ignore_eos": True, "temperature": 0,
    }  # fmt: skip
    with server.client.stream("POST", "/v1/chat/completions", json=body) as reply:
        texts = (line for line in reply.iter_lines() if '"content"' in line)
        for _ in zip(range(5), texts, strict=False):
            pass
    server.chat(QUESTION, max_tokens=1, model="demo:plain")  # its turn comes after the cancelled
    after = figures_of(server)
    name, aborted = "vllm:request_success_total", {"finished_reason": "abort"}
    assert after.total(name, **aborted) - before.total(name, **aborted) == 1
    tokens = "vllm:generation_tokens_total"
    assert 5 < after.total(tokens) - before.total(tokens) < 400
    assert after.total("vllm:num_requests_running") == 0
    assert after.total("vllm:num_requests_waiting") == 0


def test_figures_are_there_from_the_start(first_figures: Figures) -> None:
    """A loaded pair's counters are 0 before the first request, so that rates can be taken."""
    labels = frozenset({("model_name", "demo"), ("engine", "0")})
    for name in ("vllm:generation_tokens", "vllm:spec_decode_num_drafts", "specchat:steps",
                 "specchat:passes", "specchat:rows", "specchat:joint_seconds",
                 "specchat:apart_seconds", "specchat:engine_restarts"):  # fmt: skip
        assert first_figures.samples[f"{name}_total", labels] == 0


def test_metrics_need_the_key(server: Running) -> None:
    """What a user's programs ask for is nobody else's business."""
    for path in ("/metrics", "/grafana.json"):
        assert server.client.get(path, headers={"authorization": ""}).status_code == 401


def test_open_metrics_is_spoken_too(server: Running) -> None:
    """Newer scrapers ask for it by Accept."""
    wanted = {"accept": "application/openmetrics-text; version=1.0.0"}
    reply = server.client.get("/metrics", headers=wanted)
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    assert reply.text.endswith("# EOF\n")


def test_the_dashboard_asks_for_nothing_that_is_not_there(server: Running) -> None:
    """Every figure in its queries is in `/metrics`; the server hands the dashboard out."""
    server.chat(QUESTION, temperature=0, max_tokens=24, **DRAFTED)
    dashboard = server.client.get("/grafana.json").json()
    assert dashboard == json.loads(DASHBOARD.read_text("utf-8"))
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    figures = figures_of(server)
    assert len(targets) > 15
    for target in targets:
        names = set(METRIC.findall(target["expr"]))
        assert names
        assert names - figures.names == set()
        by = {label for each in BY.findall(target["expr"]) for label in each.split(", ")}
        assert set(LEGEND.findall(target["legendFormat"])) <= by
        assert by - figures.labels(names) == set()
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_the_page_about_the_server_names_what_is_there(server: Running) -> None:
    """Every figure in its text is in `/metrics`, and every endpoint answers."""
    server.chat(QUESTION, temperature=0, max_tokens=24, **DRAFTED)
    names = figures_of(server).names
    spans = re.findall(r"`([^`\n]+)`", read("server"))
    named = {each for span in spans for each in METRIC.findall(span)}
    histograms = {name for name in named if f"{name}_bucket" in names}
    assert len(named) > 15
    assert named - histograms - names == set()
    paths = {span for span in spans if re.fullmatch(r"/[\w/.-]+", span)} - {"/serve"}
    assert len(paths) > 6
    assert {path for path in paths if server.client.get(path).status_code == 404} == set()
