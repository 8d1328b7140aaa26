"""`/metrics`: figures for Prometheus, under specchat's names, vLLM's and llama-server's.

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

from specchat import __version__
from specchat.docs import DASHBOARD
from specchat.server.activity import Times, Totals
from specchat.server.service import Service

ENGINE = "0"
"""vLLM's label for the first of several engines; specchat has one."""
MODEL = "model_name"

Sample = tuple[tuple[str, ...], float]
"""The values of a figure's labels, and the figure."""


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
        by_model = {self._service.name: Totals(), **self._service.activity.totals_by_model()}
        everything = self._service.activity.totals()
        yield from self._states()
        yield from _own_counters(by_model)
        yield from _own_times(by_model)
        yield _gauge(
            "specchat:speedup",
            "Speedup over plain decoding of all answers with a sound one; 0 without any.",
            everything.speedup,
        )
        yield _gauge(
            "specchat:saved_seconds",
            "Seconds saved against plain decoding, of the same answers; below 0 if lost.",
            everything.saved_s,
        )
        yield from _vllm(by_model, everything)
        yield from _llama_server(everything)

    def _states(self) -> Iterator[Metric]:
        engine, facts = self._service.engine, self._service.facts
        labels = {"version": __version__, MODEL: self._service.name, "target": facts.target}
        about = GaugeMetricFamily("specchat:info", "What is served.", labels=list(labels))
        about.add_metric(list(labels.values()), 1)
        yield about
        yield _gauge("specchat:context_tokens", "Tokens that a request may have.", facts.context)
        running, waiting = engine.num_running, engine.num_waiting
        yield _gauge("specchat:requests_running", "Answers that take turns.", running)
        yield _gauge("specchat:requests_waiting", "Requests that wait for a turn.", waiting)
        yield _counter(
            "specchat:engine_restarts", "Times the engine died and was loaded again.",
            (), [((), engine.num_restarts)],
        )  # fmt: skip
        yield _counter(
            "specchat:requests_refused", "Requests refused because the queue was full.",
            (), [((), engine.num_refused)],
        )  # fmt: skip
        for name, value in (("running", running), ("waiting", waiting)):
            family = GaugeMetricFamily(
                f"vllm:num_requests_{name}", f"Requests {name}.", labels=[MODEL, "engine"]
            )
            family.add_metric([self._service.name, ENGINE], value)
            yield family
        yield _gauge("llamacpp:requests_processing", "Requests in progress.", running)
        yield _gauge("llamacpp:requests_deferred", "Requests that wait.", waiting)


def _own_counters(by_model: Mapping[str, Totals]) -> Iterator[Metric]:
    models = by_model.items()
    yield _counter(
        "specchat:requests", "Requests that are over.", (MODEL, "api", "finish"),
        [((model, *kind), count) for model, each in models
         for kind, count in sorted(each.finishes.items())],
    )  # fmt: skip
    yield _counter(
        "specchat:prompt_tokens", "Prompt tokens, read or already in the model's memory.",
        (MODEL, "source"),
        [sample for model, each in models for sample in (
            ((model, "read"), each.prompt_tokens - each.cached_tokens),
            ((model, "cached"), each.cached_tokens),
        )],
    )  # fmt: skip
    for name, words, field in (
        ("generated_tokens", "Generated tokens, reasoning included.", "generated_tokens"),
        ("reasoning_tokens", "Generated tokens that were reasoning.", "reasoning_tokens"),
        ("steps", "Passes of the target that emitted tokens.", "steps"),
        ("prompt_seconds", "Seconds of reading prompts.", "prompt_s"),
        ("decode_seconds", "Seconds of decoding.", "decode_s"),
        ("plain_seconds", "Seconds plain decoding would take, of sound answers.", "plain_s"),
        ("own_seconds", "Seconds that decoding took, of sound answers.", "own_s"),
    ):
        samples = [((model,), getattr(each, field)) for model, each in models]
        yield _counter(f"specchat:{name}", words, (MODEL,), samples)
    for index, name in enumerate(("drafted", "accepted")):
        yield _counter(
            f"specchat:{name}_tokens", f"Draft tokens that were {name}, by what drafted them.",
            (MODEL, "origin"),
            [((model, origin), counts[index]) for model, each in models
             for origin, counts in sorted(each.by_origin.items())],
        )  # fmt: skip


def _own_times(by_model: Mapping[str, Totals]) -> Iterator[Metric]:
    for name, words, field in (
        ("time_to_first_token_seconds", "From the request to the first token.", "first_token"),
        ("queue_time_seconds", "From the request to its first turn.", "queue"),
    ):
        family = HistogramMetricFamily(f"specchat:{name}", words, labels=[MODEL])
        for model, totals in by_model.items():
            times: Times = getattr(totals, field)
            family.add_metric([model], times.cumulative(), times.total)
        yield family


def _vllm(by_model: Mapping[str, Totals], everything: Totals) -> Iterator[Metric]:
    """Yield vLLM's figures of speculation and of tokens, with its names and labels."""
    models = by_model.items()
    for name, words, field in (
        ("spec_decode_num_drafts", "Number of spec decoding drafts.", "num_drafts"),
        ("spec_decode_num_draft_tokens", "Number of draft tokens.", "drafted"),
        ("spec_decode_num_accepted_tokens", "Number of accepted tokens.", "accepted"),
        ("prompt_tokens", "Number of prefill tokens processed.", "prompt_tokens"),
        ("generation_tokens", "Number of generation tokens processed.", "generated_tokens"),
    ):
        samples = [((model, ENGINE), getattr(each, field)) for model, each in models]
        yield _counter(f"vllm:{name}", words, (MODEL, "engine"), samples)
    yield _counter(
        "vllm:spec_decode_num_accepted_tokens_per_pos",
        "Accepted tokens per draft position.",
        (MODEL, "engine", "position"),
        [((model, ENGINE, str(position)), count) for model, each in models
         for position, count in enumerate(each.accepted_by_position)],
    )  # fmt: skip
    yield _gauge(
        "vllm:spec_decode_acceptance_rate",
        "Accepted / drafted tokens of all answers.",
        everything.acceptance_rate,
    )


def _llama_server(totals: Totals) -> Iterator[Metric]:
    """Yield llama-server's figures, under its names."""
    num_read = totals.prompt_tokens - totals.cached_tokens
    for name, words, value in (
        ("prompt_tokens", "Number of prompt tokens processed.", num_read),
        ("prompt_tokens_cached", "Number of prompt tokens reused.", totals.cached_tokens),
        ("prompt_seconds", "Prompt process time.", totals.prompt_s),
        ("tokens_predicted", "Number of generation tokens processed.", totals.generated_tokens),
        ("tokens_predicted_seconds", "Predict process time.", totals.decode_s),
        ("spec_decode_num_drafts", "Number of drafts.", totals.num_drafts),
        ("spec_decode_num_draft_tokens", "Number of draft tokens.", totals.drafted),
        ("spec_decode_num_accepted_tokens", "Number of accepted tokens.", totals.accepted),
    ):
        yield _counter(f"llamacpp:{name}", words, (), [((), value)])
    positions = enumerate(totals.accepted_by_position)
    yield _counter(
        "llamacpp:spec_decode_num_accepted_tokens_per_pos",
        "Accepted tokens per draft position.",
        ("position",),
        [((str(position),), count) for position, count in positions],
    )
    for name, words, count, seconds in (
        ("prompt_tokens", "Average prompt tokens/s.", num_read, totals.prompt_s),
        ("predicted_tokens", "Average tokens/s.", totals.generated_tokens, totals.decode_s),
    ):
        yield _gauge(f"llamacpp:{name}_seconds", words, count / seconds if seconds else 0.0)


def _counter(
    name: str, words: str, labels: Iterable[str], samples: Iterable[Sample]
) -> CounterMetricFamily:
    """Return a counter, which Prometheus shows with `_total` at the end of its name."""
    family = CounterMetricFamily(name, words, labels=list(labels))
    for values, value in samples:
        family.add_metric(list(values), value)
    return family


def _gauge(name: str, words: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, words, value=value)
