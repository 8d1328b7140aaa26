"""The statistics of an answer: those that its server reports, and those timed here."""

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from specchat.connection.prometheus_counters import Counts
from specchat.decoding.statistics import Statistics
from specchat.decoding.step_times import Gain, judged
from specchat.drafter_registry import PLAIN
from specchat.options.declarations import LONGEST_DRAFT
from specchat.safe_text import in_one_line
from specchat.wording import READ_AGAIN

DRAFTS = ("drafted", "accepted", "acceptance_rate")
STEPS = ("steps", "tokens_per_step", "acceptance_histogram", "accepted_by_position")
ALWAYS_UNREPORTED = ("nodes", "forced", "draft_s", "verify_s", "overhead_s")
UNKNOWN_COUNT = "the server does not report tokens: speeds count the parts of its stream"
LARGEST = 1 << 31
MUCH_FASTER = 2.0
"""Parts arriving this much faster than they were written must have been buffered on the way."""
LONGEST_WORDS, MOST_NOTICES = 300, 10


class ReportedFigures:
    """Fills in the statistics of one answer from the events of its stream.

    Times are taken by this machine's clock, unless something on the way buffers the stream and
    sends it at once. The first part of the stream shows when decoding began, but not how long its
    own tokens took, so the time is extended by their share.
    """

    def __init__(self, label: str, began: float, *, reports_gain: bool = False) -> None:
        """Begin with the time at which the request was sent, by `perf_counter`.

        `reports_gain` says in advance whether the server will report the gain.
        """
        self.statistics = Statistics(draft_length="", served_by=label)
        self._began = began
        self._reports_gain = reports_gain
        self._first_at = self._last_at = 0.0
        self._num_first = 0
        self._decode_there = 0.0
        self._num_parts = 0
        self._has = set[str]()
        self._is_reasoning_reported = False
        self._mark_unreported()

    @property
    def needs_counts(self) -> bool:
        """Whether the stream has not reported drafts."""
        return "drafts" not in self._has

    @property
    def knows_tokens(self) -> bool:
        """Whether the server has reported the answer's number of tokens."""
        return "tokens" in self._has

    def take(self, event: Mapping[str, Any], *, has_text: bool, is_reasoning: bool) -> None:
        """Take the figures of one event of the stream, and note whether it brought text."""
        stats, now = self.statistics, perf_counter()
        if has_text:
            self._num_parts += 1
            self._last_at = now
        self._take_usage(_mapping(event.get("usage")))
        self._take_timings(_mapping(event.get("timings")))
        self._take_metrics(_mapping(event.get("metrics")))
        self._take_own(_mapping(event.get("specchat")))
        extra = _mapping(_mapping(event.get("sglext")).get("spec_tokens_details"))
        self._take_sglang(extra)
        if "tokens" not in self._has:
            stats.generated_tokens = self._num_parts
        if has_text and not self._first_at:
            self._first_at = now
            self._num_first = max(1, stats.generated_tokens)
            stats.time_to_first_token_s = now - self._began
        if is_reasoning and has_text:
            stats.reasoning_s = now - self._first_at
            if "tokens" in self._has and not self._is_reasoning_reported:
                self._has.add("reasoning")
                stats.reasoning_tokens = stats.generated_tokens
        self._set_time()
        self._mark_unreported()

    def take_counts(self, counts: Counts) -> None:
        """Take this answer's drafts from the server's counters."""
        stats = self.statistics
        self._has.add("counts")
        stats.drafted, stats.accepted = counts.drafted, min(counts.accepted, counts.drafted)
        if counts.drafts:
            # the first token may come from the prompt's pass, which is no step
            passes = stats.generated_tokens - stats.accepted
            self._set_steps(counts.drafts if passes <= counts.drafts + 1 else passes)
            histogram = counts.histogram()
            plain = stats.steps - sum(histogram)
            if histogram and plain >= 0:
                histogram[0] += plain
                stats.acceptance_histogram = histogram
        self._mark_unreported()

    def end(self) -> None:
        """Report which statistics the server never sent and this machine could not time."""
        stats = self.statistics
        if "tokens" not in self._has and stats.generated_tokens:
            stats.notices = (*stats.notices, UNKNOWN_COUNT)
        if not stats.decode_s:  # the whole answer came at once
            stats.unreported = (*stats.unreported, "decode_s", "tokens_per_second")

    def _set_time(self) -> None:
        stats = self.statistics
        count = stats.generated_tokens
        later = count - self._num_first
        if self._first_at and later > 0:
            stats.decode_s = (self._last_at - self._first_at) * count / later
        if stats.decode_s * MUCH_FASTER < self._decode_there:  # something on the way collects parts
            stats.decode_s = self._decode_there

    def _take_usage(self, usage: Mapping[str, Any]) -> None:
        stats = self.statistics
        if (generated := _count(usage, "completion_tokens")) is not None:
            self._has.add("tokens")
            stats.generated_tokens = generated
        if (prompt := _count(usage, "prompt_tokens")) is not None:
            self._has.add("prompt")
            stats.prompt_tokens = prompt
        cached = _count(_mapping(usage.get("prompt_tokens_details")), "cached_tokens")
        if cached is not None:
            self._has.add("cached")
            stats.cached_tokens = min(cached, stats.prompt_tokens)
        of_images = _count(_mapping(usage.get("prompt_tokens_details")), "image_tokens")
        if of_images is not None:
            stats.image_tokens = min(of_images, stats.prompt_tokens)
        details = _mapping(usage.get("completion_tokens_details"))
        reasoning = _count(details, "reasoning_tokens")
        reasoning = _count(usage, "reasoning_tokens") if reasoning is None else reasoning
        if reasoning is not None:
            self._has.add("reasoning")
            self._is_reasoning_reported = True
            stats.reasoning_tokens = min(reasoning, stats.generated_tokens)

    def _take_timings(self, timings: Mapping[str, Any]) -> None:
        """Take llama.cpp's figures; each of its passes adds one token to the accepted ones."""
        stats = self.statistics
        generated = _count(timings, "predicted_n")
        if generated is None:
            return
        self._has.add("tokens")
        stats.generated_tokens = generated
        read, cached = _count(timings, "prompt_n"), _count(timings, "cache_n")
        if read is not None:
            self._has |= {"prompt", "cached"}
            stats.prompt_tokens, stats.cached_tokens = read + (cached or 0), cached or 0
        if (milliseconds := _number(timings, "prompt_ms")) is not None:
            self._has.add("prompt_s")
            stats.prompt_s = milliseconds / 1000
        self._decode_there = (_number(timings, "predicted_ms") or 0.0) / 1000
        drafted, accepted = _count(timings, "draft_n") or 0, _count(timings, "draft_n_accepted")
        self._set_drafts(drafted, accepted or 0)
        self._set_steps(generated - stats.accepted)

    def _take_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Take vLLM's figures of one request."""
        figures = _mapping(metrics.get("speculative_decoding"))
        drafted = _count(figures, "num_draft_tokens")
        if drafted is None:
            return
        self._set_drafts(drafted, _count(figures, "num_accepted_draft_tokens") or 0)
        if steps := _count(figures, "num_spec_steps"):
            self._set_steps(steps)
        self._set_histogram(figures.get("acceptance_histogram"))

    def _take_sglang(self, figures: Mapping[str, Any]) -> None:
        drafted = _count(figures, "spec_num_proposed_drafts")
        if drafted is None:
            return
        self._set_drafts(drafted, _count(figures, "spec_num_correct_drafts") or 0)
        if steps := _count(figures, "spec_verify_ct"):
            self._set_steps(steps)
        self._set_histogram(figures.get("spec_correct_drafts_histogram"))

    def _take_own(self, figures: Mapping[str, Any]) -> None:
        """Take the figures of `specchat serve`."""
        stats = self.statistics
        if not figures:
            return
        stats.drafter = _words(figures, "drafter") or PLAIN
        self._has.add("drafter")
        for name in ("speculation_off_reason", "draft_off_reason", "short_drafts_reason"):
            setattr(stats, name, _words(figures, name) or None)
        speedup, saved = _number(figures, "speedup"), _number(figures, "saved_s")
        if speedup and speedup > 0 and saved is not None:
            stats.reported_gain = _gain(
                speedup, abs(_number(figures, "speedup_error") or 0.0), saved
            )
        if (left_out := _count(figures, "left_out_messages")) is not None:
            stats.left_out = left_out
        if (repeated := _count(figures, "repeated")) is not None:
            self._has.add("repeated")
            stats.repeated = min(repeated, stats.generated_tokens)
        if isinstance(again := figures.get("read_again"), Mapping):
            self._has.add("read_again")
            counts = {reason: _count(again, reason) or 0 for reason in READ_AGAIN}
            stats.read_again = {reason: count for reason, count in counts.items() if count}
        notices = figures.get("notices")
        if isinstance(notices, list):
            stats.notices = tuple(_shown(str(notice)) for notice in notices[:MOST_NOTICES])

    def _set_drafts(self, drafted: int, accepted: int) -> None:
        self._has.add("drafts")
        self.statistics.drafted = drafted
        self.statistics.accepted = min(accepted, drafted)

    def _set_steps(self, steps: int) -> None:
        stats = self.statistics
        if steps > 0:
            self._has.add("steps")
            stats.steps = steps

    def _set_histogram(self, histogram: object) -> None:
        """Take the number of steps by accepted tokens, if the value is such a list."""
        if not isinstance(histogram, Sequence) or isinstance(histogram, str):
            return
        if len(histogram) > LONGEST_DRAFT + 1:  # from none on
            return
        if all(isinstance(count, int) and 0 <= count < LARGEST for count in histogram):
            self._has.add("histogram")
            self.statistics.acceptance_histogram = list(histogram)

    def _mark_unreported(self) -> None:
        has, stats = self._has, self.statistics
        missing = list(ALWAYS_UNREPORTED)
        missing += [] if has & {"drafts", "counts"} else DRAFTS
        missing += [] if "drafter" in has else ["drafter"]
        missing += [] if "steps" in has else STEPS[:2]
        missing += [] if stats.acceptance_histogram else STEPS[2:3]
        missing += STEPS[3:]
        missing += [] if "reasoning" in has or not stats.reasoning_s else ["reasoning_tokens"]
        missing += [] if self._reports_gain else ["reported_gain"]
        missing += [] if "prompt" in has else ["prompt_tokens"]
        missing += [] if "cached" in has else ["cached_tokens"]
        missing += [] if "prompt_s" in has else ["prompt_s"]
        missing += [name for name in ("read_again", "repeated") if name not in has]
        stats.unreported = tuple(missing)


def _gain(speedup: float, error: float, saved: float) -> Gain:
    """Return the gain that a server reports: its seconds follow from the rounded figures."""
    own = saved / (speedup - 1) if saved * (speedup - 1) > 0 else 0.0
    return Gain(judged(speedup, error), speedup, error, own * speedup, own)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(figures: Mapping[str, Any], name: str) -> int | None:
    """Return a count; None for anything else."""
    value = figures.get(name)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST
    return value if is_count else None


def _words(figures: Mapping[str, Any], name: str) -> str:
    """Return a text; "" for anything else."""
    value = figures.get(name)
    return _shown(value) if isinstance(value, str) else ""


def _shown(text: str) -> str:
    """Return a server's text in one line without control characters, cut off if it is long."""
    return in_one_line(text)[:LONGEST_WORDS]


def _number(figures: Mapping[str, Any], name: str) -> float | None:
    value: Any = figures.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and -LARGEST < value < LARGEST else None
