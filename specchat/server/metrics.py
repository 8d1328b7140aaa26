"""`/metrics`: figures for Prometheus, under vLLM's names where vLLM has them.

Counters add up the requests that are over, each as its reply counts it; gauges say what is so now.
"""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from specchat.docs import DASHBOARD
from specchat.server.activity import Times, Totals
from specchat.server.service import Service

ENGINE = "0"
"""vLLM's label for the first of several engines; specchat has one."""
LABELS = ("model_name", "engine")
FINISHES = {"context": "length", "cancelled": "abort", "failed": "error"}
"""vLLM's words for how a request ended, where they are not ours."""

Sample = tuple[tuple[str, ...], float]
"""The values of the labels that a counter has beside vLLM's two, and the count."""


async def metrics(request: Request) -> Response:
    """Return all figures, in Prometheus' text format or in OpenMetrics if that is asked for."""
    registry = CollectorRegistry()
    registry.register(ServiceCollector(request.app.state.service))
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), media_type=content_type)


async def dashboard(request: Request) -> Response:
    """Return a Grafana dashboard of these figures."""
    del request
    return FileResponse(DASHBOARD, media_type="application/json")


class ServiceCollector(Collector):
    """Collects the figures of a service when they are asked for."""

    def __init__(self, service: Service) -> None:
        """Collect from a service."""
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield all figures; counters of the loaded pair are there from the start, as 0."""
        engine, name = self._service.engine, self._service.name
        num_refused = self._service.activity.num_refused
        for state, count in (("running", engine.num_running), ("waiting", engine.num_waiting)):
            gauge = GaugeMetricFamily(
                f"vllm:num_requests_{state}", f"Requests {state}.", labels=LABELS
            )
            gauge.add_metric((name, ENGINE), count)
            yield gauge
        for event, help_text, count in (
            ("engine_restarts", "Times the engine died and was loaded again.", engine.num_restarts),
            ("requests_refused", "Requests refused: too many at once.", num_refused),
        ):
            yield _counter(f"specchat:{event}", help_text, {name: [((), count)]})
        by_model = {name: Totals(), **self._service.activity.totals_by_model()}
        yield from _counters(by_model)
        yield from _histograms(by_model)


def _counters(by_model: Mapping[str, Totals]) -> Iterator[Metric]:
    for name, help_text, field in (
        ("vllm:prompt_tokens", "Prompt tokens.", "prompt_tokens"),
        ("vllm:prefix_cache_hits", "Prompt tokens that were cached.", "cached_tokens"),
        ("vllm:generation_tokens", "Generated tokens, reasoning included.", "generated_tokens"),
        ("vllm:spec_decode_num_drafts", "Steps that had a draft.", "drafted_by_position"),
        (
            "specchat:steps",
            "Rounds of drafting and verifying, in which tokens were emitted.",
            "steps",
        ),
        (
            "specchat:passes",
            "Passes of the target in these steps: answers may share one.",
            "passes",
        ),
        ("specchat:rows", "Tokens that these passes read: drafts, and what precedes.", "rows"),
        ("specchat:joint_seconds", "Seconds of passes that answers shared.", "joint_s"),
        ("specchat:apart_seconds", "Seconds they would take for one answer each.", "apart_s"),
        ("specchat:plain_seconds", "Seconds plain decoding would take.", "plain_s"),
        ("specchat:own_seconds", "Seconds decoding took, of the same answers.", "own_s"),
    ):
        samples = {model: [((), _count(totals, field))] for model, totals in by_model.items()}
        yield _counter(name, help_text, samples)
    yield _counter(
        "vllm:request_success", "Requests that are over.",
        {model: _finishes(totals) for model, totals in by_model.items()},
        ("api", "finished_reason"),
    )  # fmt: skip
    for index, (name, verb) in enumerate((("draft", "drafted"), ("accepted", "accepted"))):
        yield _counter(
            f"vllm:spec_decode_num_{name}_tokens", f"Draft tokens that were {verb}.",
            {model: [((origin,), counts[index]) for origin, counts in totals.sums.by_origin.items()]
             for model, totals in by_model.items()},
            ("origin",),
        )  # fmt: skip
    yield _counter(
        "vllm:spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position.",
        {model: [((str(position),), sum(totals.sums.acceptance_histogram[position + 1 :]))
                 for position in range(len(totals.sums.acceptance_histogram) - 1)]
         for model, totals in by_model.items()},
        ("position",),
    )  # fmt: skip


def _count(totals: Totals, field: str) -> float:
    """Return a figure of the totals, or of their sums; of a list, the number in its first place."""
    count = getattr(totals, field, None)
    count = getattr(totals.sums, field) if count is None else count
    return next(iter(count), 0) if isinstance(count, list) else count


def _finishes(totals: Totals) -> list[Sample]:
    """Return how many requests of an API ended in each of vLLM's ways."""
    counts: dict[tuple[str, ...], int] = {}
    for (api, finish), count in totals.finishes.items():
        labels = api, FINISHES.get(finish, finish)
        counts[labels] = counts.get(labels, 0) + count
    return list(counts.items())


def _histograms(by_model: Mapping[str, Totals]) -> Iterator[Metric]:
    for name, help_text, field in (
        ("time_to_first_token", "From the request to the first token.", "first_token"),
        ("request_queue_time", "From the request to its first turn.", "queue"),
        ("request_prefill_time", "Reading the prompt.", "prompt"),
        ("request_decode_time", "Decoding.", "decode"),
    ):
        family = HistogramMetricFamily(f"vllm:{name}_seconds", help_text, labels=LABELS)
        for model, totals in by_model.items():
            times: Times = getattr(totals, field)
            family.add_metric((model, ENGINE), times.cumulative(), times.total)
        yield family


def _counter(
    name: str,
    help_text: str,
    by_model: Mapping[str, Iterable[Sample]],
    labels: tuple[str, ...] = (),
) -> CounterMetricFamily:
    """Return a counter, which Prometheus shows with `_total` at the end of its name."""
    family = CounterMetricFamily(name, help_text, labels=(*LABELS, *labels))
    for model, samples in by_model.items():
        for values, count in samples:
            family.add_metric((model, ENGINE, *values), count)
    return family
