"""Prediction heads (MTP) change no text, need the target's rows, and never end the process."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from shutil import copy
from time import sleep
from typing import Any, TypeAlias

import gguf
import numpy as np
import pytest
from scipy import stats

from conftest import WriteModel
from memory_in_use import native_bytes, num_objects
from scripts.support.tiny_gguf import Vocabulary, write_with_head
from specchat.decoding.replay import Replay
from specchat.decoding.sampling import Sampler
from specchat.drafting.head_fit import HeadFit
from specchat.engine import pair_pacing
from specchat.engine.api import Engine, Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import IncompatibleDraft, InvalidOption, ModelWontLoad, SpecchatError
from specchat.gguf.draft_kinds import HEAD_BATCH, why_no_head
from specchat.gguf.eagle_draft import why_unfit
from specchat.gguf.header import Tensor
from specchat.gguf.reader import read_header, read_part
from specchat.llama.batch import Batch
from specchat.llama.context import Context
from specchat.llama.eagle_head import features_of
from specchat.llama.hidden_state_feed import HiddenStateFeed
from specchat.llama.library import api
from specchat.options.declarations import Sampling
from specchat.pacing import way_choice
from tables import table

EXACT: dict[str, Any] = {
    "ctx": 512,
    "threads": 1,
    "flash_attention": "off",
    "cache_type": "f32",
    "learn": False,
}
PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]
KINDS = [
    *("qwen3next", "qwen35", "qwen35moe", "glm4moe", "hy_v3", "cohere2moe"),
    *("deepseek2", "deepseek32", "glm-dsa", "bailingmoe3", "nemotron_h_moe", "mimo2", "step35"),
    *("deepseek4", "hy_v3 in turn", "mimo2 in turn", "step35 in turn"),
    *("qwen35 in two files", "gemma4 in two files"),
    *("qwen3 in two files", "qwen3moe in two files"),
    *("llama with EAGLE-3", "qwen3 with EAGLE-3", "qwen35 with EAGLE-3"),
]
BLOCK_KINDS, EAGLE_KINDS = KINDS[-5:-3], KINDS[-3:]
"""Those with a DFlash and an EAGLE-3 draft."""
SORTS = (
    *("qwen35", "deepseek2", "deepseek4", "nemotron_h_moe", "mimo2 in turn"),
    "gemma4 in two files",
    *("qwen3 in two files", "llama with EAGLE-3", "qwen35 with EAGLE-3"),
)
"""One kind of each sort: of memory (attention, latent or with a recurrent state), and of head."""
MORE_EAGLE_KINDS = [f"{kind} with EAGLE-3" for kind in ("qwen3moe", "qwen35moe", "gpt-oss")]
"""The last one reads what the target's last layer gives."""
LAYERS = (
    dict.fromkeys(KINDS, 2)
    | {"cohere2moe": 3, "hy_v3": 3, "hy_v3 in turn": 3, "nemotron_h_moe": 3}
    | dict.fromkeys([*BLOCK_KINDS, *EAGLE_KINDS, *MORE_EAGLE_KINDS], 4)
)
"""Enough layers for one of each sort that an architecture has, where many tokens are decoded."""
OTHER_KINDS = (
    *("bailingmoe2", "exaone4", "exaone-moe", "glm4", "glm5-next", "dots3note", "qwen4exp"),
)
"""Architectures whose heads are refused: llama.cpp does not run them."""
WHOLE: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0}
ASSISTANT_TENSORS = (
    "token_embd", "output_norm", "rope_freqs", "nextn.pre_projection", "nextn.post_projection",
    "blk.0.attn_norm", "blk.0.attn_q", "blk.0.attn_output", "blk.0.attn_q_norm",
    "blk.1.post_attention_norm", "blk.1.ffn_norm", "blk.1.ffn_gate", "blk.1.ffn_up",
    "blk.1.ffn_down", "blk.1.post_ffw_norm", "blk.1.layer_output_scale",
)  # fmt: skip
ALMOST_RIGHT, DOUBTFUL = 0.01, 0.2
"""How much noise there is in the target that its head does not have."""

LATTICE = {
    "dflash.conv_kernel_size": 2,
    "dflash.conv_group_size": 8,
    "dflash.selector_rank": 8,
    "dflash.selector_top_k": 4,
}

WriteHead: TypeAlias = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def heads(tmp_path_factory: pytest.TempPathFactory) -> WriteHead:
    """Return a writer of targets with heads: what to load, by the keywords of `Engine.load`."""
    folder = tmp_path_factory.mktemp("heads")

    def write_part(part: str, kind: str, options: dict[str, Any]) -> Path:
        name = "-".join(f"{each}" for each in (part, kind, *sorted(options.items())))
        path = folder / f"{name}.gguf"
        return path if path.exists() else write_with_head(path, kind, part=part, **options)

    def write(kind: str, **options: Any) -> dict[str, Any]:
        architecture, _, how = kind.partition(" ")
        if how.startswith("in turn"):
            options["num_in_turn"] = 3
            how = how.removeprefix("in turn")
        if not how:
            return {"target": write_part("whole", architecture, options)}
        if how.startswith("with "):
            options["draft"] = how.removeprefix("with ")
        names = {"target": "trunk", "draft": "head"}
        return {role: write_part(part, architecture, options) for role, part in names.items()}

    return write


@contextmanager
def opened(files: dict[str, Any], **options: Any) -> Iterator[LocalEngine]:
    """An engine in this process."""
    with LocalEngine(Loading(**files, **{**EXACT, **options})) as engine:
        yield engine


def tokens_of(engine: Engine, prompt: Sequence[int] = PROMPT, **options: Any) -> list[int]:
    """Decode an answer, greedy unless the options differ, and return its tokens."""
    usual: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40, "drafter": "head"}
    options = usual | options
    return [token for chunk in engine.generate(prompt, **options) for token in chunk.tokens]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("kind", "noise"),
    [*((kind, DOUBTFUL) for kind in KINDS), *((kind, ALMOST_RIGHT) for kind in SORTS)],
)
def test_greedy_text_is_plain_decodings(heads: WriteHead, kind: str, noise: float) -> None:
    """For short and long drafts, over two turns, regenerated, after another text, with suffix."""
    with opened(heads(kind, noise=noise, num_layers=LAYERS[kind])) as engine:
        plain = tokens_of(engine, drafter="none")
        second = [*PROMPT, *plain, 9, 99, 33]
        follows = tokens_of(engine, second, drafter="none")
        other = tokens_of(engine, [5, 6, 7], drafter="none")
        for length in (1, 3, 8):
            for drafter in ("head", "auto"):
                options: dict[str, Any] = {"drafter": drafter, "draft_length": length}
                assert tokens_of(engine, **options) == plain
                assert tokens_of(engine, second, **options) == follows
                assert tokens_of(engine, second, **options) == follows
                assert engine.stats.cached_tokens == len(second) - 1
                assert tokens_of(engine, [5, 6, 7], **options) == other
                assert engine.stats.drafter == ("head" if drafter == "head" else "suffix+head")
                assert engine.stats.drafted > 0
        for drafter in ("head", "auto"):
            paced = tokens_of(engine, drafter=drafter, draft_length="auto")
            assert paced == plain


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("kind", [*SORTS, *MORE_EAGLE_KINDS])
def test_greedy_text_is_plain_decodings_up_to_the_contexts_end(heads: WriteHead, kind: str) -> None:
    """An answer that fills the context is the same to its last token."""
    with opened(heads(kind, num_layers=LAYERS[kind]), ctx=256) as engine:
        plain = tokens_of(engine, max_tokens=None, drafter="none")
        for length in (1, 3, 8):
            assert tokens_of(engine, max_tokens=None, draft_length=length) == plain
            assert engine.stats.speculation


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("kind", SORTS)
def test_a_stop_in_any_pass_leaves_the_next_answer_right(
    heads: WriteHead, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in a pass of the target or the head, reading the prompt or drafting."""
    with opened(heads(kind, noise=DOUBTFUL, num_layers=LAYERS[kind])) as engine:
        prompt = list(range(10, 100))
        plain = tokens_of(engine, drafter="none")
        other = tokens_of(engine, prompt, drafter="none")
        num_passes, stop_at = 0, 0

        def stopping(evaluate: Callable[..., None]) -> Callable[..., None]:
            def evaluate_or_stop(*arguments: Any) -> None:
                nonlocal num_passes
                num_passes += 1
                if num_passes == stop_at:
                    engine.stop()
                evaluate(*arguments)

            return evaluate_or_stop

        monkeypatch.setattr(Context, "run", stopping(Context.run))
        for stop_at in range(1, 24):  # noqa: B007  # read above
            num_passes = 0
            cut = tokens_of(engine, prompt, draft_length=3)
            assert cut == other[: len(cut)]
            num_passes = 1000
            assert tokens_of(engine, draft_length=3) == plain


def rate(files: dict[str, Any], draft_length: int = 3, **options: Any) -> float:
    """Return the acceptance rate at temperature 0 over some answers."""
    random = np.random.default_rng(0)
    accepted = drafted = 0
    with opened(files, **options) as engine:
        for _ in range(6):
            prompt = [int(token) for token in random.integers(10, 300, 12)]
            tokens_of(engine, prompt, draft_length=draft_length)
            accepted += engine.stats.accepted
            drafted += engine.stats.drafted
    return accepted / drafted


hidden_states, layer_inputs = Context.hidden_states, Context.layer_inputs
take, logits = HiddenStateFeed.take, Context.logits


def of_target(read: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a reader of hidden states that changes a target's, and no head's own."""

    def read_changed(context: Context, *arguments: Any) -> Any:
        states = read(context, *arguments)
        return states if context.model.sizes.kind.is_head else change(states)

    return read_changed


def early(states: Any) -> Any:
    """Return each state in the place of the one after it."""
    return np.roll(states, 1, axis=0)


def first_for_all(states: Any) -> Any:
    """Return the first state for all tokens."""
    return np.repeat(states[:1], len(states), axis=0)


def first_logits(context: Context, num_rows: int) -> Any:
    """Return the logits of a pass's first tokens where there are some for all."""
    if not context.model.sizes.kind.gives_all_logits:
        return logits(context, num_rows)
    return logits(context, context.batch.count)[:num_rows]


def logits_before(context: Context, num_rows: int) -> Any:
    """Return the logits of a block in the places after theirs."""
    rows = logits(context, num_rows)
    return [None, *rows] if context.model.sizes.kind.drafts_blocks else rows


HIDDEN_STATES = "specchat.llama.context.Context.hidden_states"
LAYER_INPUTS = "specchat.llama.context.Context.layer_inputs"
LOGITS = "specchat.llama.context.Context.logits"
NOT_FED: tuple[str, Any] = (
    "specchat.llama.hidden_state_feed.HiddenStateFeed.after_pass",
    lambda *_, **__: None,
)
OWN_ONLY: tuple[str, Any] = (
    "specchat.llama.hidden_state_feed.HiddenStateFeed.take",
    lambda self, start, count: [] if start else take(self, start, count),
)
MUTANTS: dict[str, tuple[tuple[str, Any], ...]] = {
    "rows one token early": ((HIDDEN_STATES, of_target(hidden_states, early)),),
    "zero rows": ((HIDDEN_STATES, of_target(hidden_states, lambda states: 0 * states)),),
    "not fed": (NOT_FED,),
    "the first row, as a masked context has it": (
        (HIDDEN_STATES, of_target(hidden_states, first_for_all)),
    ),
    "the head's own rows only": (OWN_ONLY,),
}
IN_TURN_MUTANTS: dict[str, tuple[tuple[str, Any], ...]] = {
    **MUTANTS,
    "the first head in each turn": (
        ("specchat.llama.native_context.NativeContext.use_head", lambda *_: None),
    ),
    "later heads that have not read the text": (
        (
            "specchat.llama.heads_in_turn.HeadsInTurn._catch_up",
            lambda self, head: head.leave_out(self._first.context.tokens),
        ),
    ),
}


def of_features(change: Callable[[Any], Any]) -> tuple[tuple[str, Any], ...]:
    """Return a mutant of what layers read, and of what the last one gives."""
    return (
        (HIDDEN_STATES, of_target(hidden_states, change)),
        (LAYER_INPUTS, of_target(layer_inputs, change)),
    )


EAGLE_MUTANTS: dict[str, tuple[tuple[str, Any], ...]] = {
    "rows one token early": of_features(early),
    "zero rows": of_features(lambda states: 0 * states),
    "not fed": (NOT_FED,),
    "the first row for all": of_features(first_for_all),
    "the layers the other way round": (
        (
            "specchat.llama.eagle_head.features_of",
            lambda target, layers: features_of(target, layers[::-1]),
        ),
    ),
    "the logits of the pass's first tokens": ((LOGITS, first_logits),),
    "the head's own rows only": (OWN_ONLY,),
}


BLOCK_MUTANTS: dict[str, tuple[tuple[str, Any], ...]] = {
    "rows one token early": ((LAYER_INPUTS, of_target(layer_inputs, early)),),
    "zero rows": ((LAYER_INPUTS, of_target(layer_inputs, lambda states: 0 * states)),),
    "not fed": (NOT_FED,),
    "the first row for all": ((LAYER_INPUTS, of_target(layer_inputs, first_for_all)),),
    "the logits of the places before": ((LOGITS, logits_before),),
}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("kind", [*KINDS, *MORE_EAGLE_KINDS])
def test_the_head_needs_the_targets_rows(
    heads: WriteHead, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most drafts are accepted with the right rows, and fewer with any others.

    Each sort is tried with all wrong rows; other kinds are with the likeliest ones.
    """
    files = heads(kind, noise=ALMOST_RIGHT, num_layers=LAYERS[kind])

    assert rate(files) > 0.8
    mutants = EAGLE_MUTANTS if "EAGLE" in kind else MUTANTS
    mutants = IN_TURN_MUTANTS if "in turn" in kind else mutants
    mutants = BLOCK_MUTANTS if kind in BLOCK_KINDS else mutants
    for patches in [*mutants.values()][: None if kind in SORTS else 1]:
        with monkeypatch.context() as patch:
            for place, mutant in patches:
                patch.setattr(place, mutant)
            assert rate(files) < 0.7


def exact_shares(engine: LocalEngine, options: Sampling, num_tokens: int) -> dict[Any, float]:
    """Return the probability of each beginning of an answer, by plain evaluation."""
    sampler, shares = Sampler(options), {(): 1.0}
    for _ in range(num_tokens):
        longer: dict[Any, float] = {}
        for begun, share in shares.items():
            text = [*PROMPT, *begun]
            engine.context.prefill(text[:-1])
            found = sampler.distribution(engine.context.evaluate(text[-1:], 1)[0], text)
            for token in range(320):
                if probability := found.probability(token):
                    longer[(*begun, token)] = share * probability
        shares = longer
    return shares


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "drafter"),
    [
        ("qwen35", "head"),
        ("gemma4 in two files", "head"),
        ("mimo2 in turn", "head"),
        ("qwen3 in two files", "head"),
        ("llama with EAGLE-3", "auto"),
    ],
)
def test_three_tokens_together_are_distributed_as_the_target_has_them(
    heads: WriteHead, kind: str, drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At temperature 1, in steps of three drafts, against the exact shares (false alarm 1e-4)."""
    generator = np.random.default_rng(12)
    monkeypatch.setattr("specchat.decoding.request.default_rng", lambda: generator)
    counts: Counter[Any] = Counter()
    options = WHOLE | {"top_k": 4}
    with opened(heads(kind, noise=DOUBTFUL, num_layers=LAYERS[kind])) as engine:
        shares = exact_shares(engine, Sampling(**options), 3)
        for _ in range(1000):
            answer = tokens_of(engine, max_tokens=3, drafter=drafter, draft_length=3, **options)
            counts[tuple(answer)] += 1

    likely = [each for each, share in shares.items() if share * 1000 >= 5]
    seen = [counts[each] for each in likely]
    expected = [1000 * shares[each] for each in likely]
    seen.append(1000 - sum(seen))
    expected.append(1000 - sum(expected))
    assert set(counts) <= set(shares)
    assert stats.chisquare(seen, expected).pvalue > 1e-4


@pytest.mark.parametrize("kind", ["qwen35", "mimo2 in turn", "llama with EAGLE-3"])
def test_a_step_takes_one_pass_of_the_head_per_drafted_token(
    heads: WriteHead, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was accepted is read together with the next token."""
    num_passes = 0
    run = Context.run

    def count(self: Context, batch: Batch) -> None:
        nonlocal num_passes
        num_passes += self.model.sizes.kind.is_head
        run(self, batch)

    monkeypatch.setattr(Context, "run", count)
    with opened(heads(kind, noise=0.1)) as engine:
        tokens_of(engine, max_tokens=2)
        num_passes = 0
        tokens_of(engine, draft_length=4, max_tokens=100)

        assert num_passes == engine.stats.drafted


def test_only_rows_of_accepted_tokens_are_joined(
    heads: WriteHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an EAGLE-3 draft, those of a step in one go."""
    counts: list[int] = []
    encode = Context.encode

    def count(self: Context, batch: Batch) -> Any:
        counts.append(batch.count)
        return encode(self, batch)

    with opened(heads("llama with EAGLE-3", noise=0.1)) as engine:
        tokens_of(engine, max_tokens=2)
        monkeypatch.setattr(Context, "encode", count)
        num_tokens = len(tokens_of(engine, draft_length=4, max_tokens=100))

        assert sum(count > 0 for count in counts) <= engine.stats.steps
        assert num_tokens - 5 <= sum(counts) <= num_tokens


def test_an_eagle_draft_has_no_entry_for_the_first_token(heads: WriteHead) -> None:
    """No row precedes it. Its draft is made without one, and nothing of that stays."""
    with opened(heads("llama with EAGLE-3", noise=DOUBTFUL)) as engine:
        memory = api.llama_get_memory(engine._draft_context.context.handle)  # type: ignore[union-attr]
        for prompt in ([40], PROMPT, [40, 75]):
            plain = tokens_of(engine, prompt, drafter="none", max_tokens=3)
            for length in (1, 3):
                assert tokens_of(engine, prompt, draft_length=length, max_tokens=3) == plain
                assert api.llama_memory_seq_pos_min(memory, 0) == 1
            options = {"temperature": 1.0, "seed": 1}
            assert tokens_of(engine, prompt, draft_length=3, **options)
        engine.forget()
        assert api.llama_memory_seq_pos_min(memory, 0) == -1


def test_what_a_head_reads_is_part_of_what_it_costs(
    heads: WriteHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its passes are measured with rows of its target's for all their tokens."""
    num_read = []

    def count(context: Context, batch: Batch) -> Any:
        num_read.append(batch.count)
        return encode(context, batch)

    encode = Context.encode
    monkeypatch.setattr(Context, "encode", count)
    monkeypatch.setattr(pair_pacing, "HEAD_LENGTHS", (1, 2, 4))
    with opened(heads("llama with EAGLE-3")) as engine:
        assert engine.prepare()
        assert engine.pacing.knowledge.reads_accepted
    assert {1, 2, 4} <= set(num_read)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    "options",
    [
        {"num_left_out": 0},
        {"num_left_out": 40},
        {"num_left_out": 0, "has_own_output": False},
        {"has_own_embedding": True},
        {"num_left_out": 0, "has_own_output": False, "has_own_embedding": True},
    ],
)
def test_an_eagle_draft_has_its_own_matrices_or_the_targets(
    heads: WriteHead, options: dict[str, Any]
) -> None:
    """Embeddings, an output, and a vocabulary, whole or reduced; the text is always the same."""
    files = heads("llama with EAGLE-3", noise=ALMOST_RIGHT, **options)
    assert rate(files) > (0.6 if options.get("num_left_out") == 40 else 0.8)
    with opened(files) as engine:
        plain = tokens_of(engine, drafter="none")
        for drafter in ("head", "auto"):
            assert tokens_of(engine, drafter=drafter, draft_length=4) == plain
            for more in ({"top_k": 0}, {"repeat_penalty": 1.3, "logit_bias": {3: 4.0}}):
                assert tokens_of(engine, drafter=drafter, seed=3, **WHOLE | more)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"width": 128}, "it is for a width of 128, the target's is 64"),
        ({"vocabulary": 330}, "its vocabulary is not the target's"),
        ({"vocabulary": Vocabulary(changed_token=9)}, "its vocabulary is not the target's"),
        ({"left_out": "output.weight"}, "a reduced vocabulary without an output of its own"),
        *[
            ({"left_out": f"{name}.weight"}, f"{name}.weight")
            for name in ("fc", "output_norm", "attn_norm", "attn_norm_2", "attn_v", "ffn_down")
        ],
    ],
)
def test_an_eagle_draft_that_does_not_fit_is_refused_in_words(
    heads: WriteHead, tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    """With another width or vocabulary, or without a tensor."""
    target = heads("llama with EAGLE-3")["target"]
    draft = write_with_head(tmp_path / "eagle3.gguf", "llama", part="head", **options)
    with (
        pytest.raises(SpecchatError, match=reason) as refused,
        opened({"target": target, "draft": draft}),
    ):
        pass

    assert "\n" not in str(refused.value)


def test_an_eagle_draft_fits_no_other_target(heads: WriteHead, tiny: WriteModel) -> None:
    """Neither of an architecture that was not tried, nor with fewer layers, nor itself."""
    kind = "llama with EAGLE-3"
    draft = heads(kind)["draft"]
    for target, reason in (
        (tiny("gemma3"), "targets of gemma3 are not supported"),
        (heads(kind, num_layers=2)["target"], "layers up to 3, the target has 2"),
        (heads(kind, num_layers=3)["target"], "the last layer.s output, which targets of llama"),
        (draft, "only a prediction head"),
    ):
        with pytest.raises(SpecchatError, match=reason), opened({"target": target, "draft": draft}):
            pass


@pytest.mark.parametrize("tokens", [[320], [-1], [2**62]])
def test_an_eagle_draft_whose_map_leaves_the_vocabulary_is_refused(
    heads: WriteHead, tmp_path: Path, tokens: list[int]
) -> None:
    """llama.cpp would end the process."""
    files = heads("llama with EAGLE-3")
    changed = tmp_path / "eagle3.gguf"
    copy(files["draft"], changed)
    header = read_part(changed)
    with changed.open("r+b") as file:
        file.seek(header.data_position + header.tensors["d2t"].offset + 8 * 17)
        file.write(np.array(tokens, "<i8").tobytes())
    with (
        pytest.raises(IncompatibleDraft, match="its reduced vocabulary is not in the target's"),
        opened({**files, "draft": changed}),
    ):
        pass


@table(
    ("changes", "tensor", "reason"),
    [
        ({"eagle3.target_layers": ()}, None, "lacks its target's 3 layers"),
        ({"eagle3.target_layers": (1, 2)}, None, "lacks its target's 3 layers"),
        ({"eagle3.target_layers": 3}, None, "lacks its target's 3 layers"),
        ({"eagle3.target_hidden_size": 0}, None, "or their width"),
        ({"eagle3.block_count": 2}, None, "has 2 layers"),
        ({"eagle3.nextn_predict_layers": 1}, None, "one is supported"),
        ({"eagle3.attention.head_count": 0}, None, "attention heads"),
        ({"eagle3.attention.head_count_kv": 5}, None, "attention heads"),
        ({"eagle3.attention.head_count_kv": 0}, None, "attention heads"),
        ({"eagle3.attention.value_length": 8}, None, "its values 8"),
        ({"eagle3.rope.dimension_count": 32}, None, "rotates 32 of 16 numbers"),
        ({"eagle3.rope.dimension_count": 3}, None, "rotates 3 of 16 numbers"),
        ({"eagle3.embedding_length_out": 32}, None, "hidden states of another width"),
        ({}, Tensor("d2t", (310,), 0), "64-bit integers"),
        ({}, Tensor("d2t", (31, 10), 27), "64-bit integers"),
    ],
)
def test_eagle_drafts_that_llama_cpp_cannot_run_are_refused(
    heads: WriteHead, changes: dict[str, Any], tensor: Tensor | None, reason: str
) -> None:
    """By their headers: llama.cpp would end the process for some."""
    header = read_header(heads("llama with EAGLE-3")["draft"])
    more = {tensor.name: tensor} if tensor else {}
    changed = replace(
        header, metadata={**header.metadata, **changes}, tensors={**header.tensors, **more}
    )
    assert why_no_head(header) is None
    assert reason in (why_no_head(changed) or "")


@table(
    ("kind", "changes", "tensor", "reason"),
    [
        (
            *("mimo2 in turn", {"mimo2.block_count": 13, "mimo2.nextn_predict_layers": 9}),
            *("", "9 prediction heads, and at most 8"),
        ),
        ("mimo2 in turn", {}, "-blk.5.attn_qkv.weight", "lacks the tensor attn_qkv.weight"),
        ("mimo2 in turn", {}, "-blk.6.nextn.hnorm.weight", "lacks the tensor nextn.hnorm.weight"),
        ("hy_v3 in turn", {}, "-blk.5.ffn_up_exps.weight", "lacks the tensor ffn_up_exps.weight"),
        ("step35 in turn", {}, "-blk.6.ffn_up.weight", "lacks the tensor ffn_up.weight"),
        ("step35", {}, "blk.4.ffn_gate_inp.weight", "lacks the tensor ffn_gate_exps.weight"),
        ("qwen35", {"qwen35.nextn_predict_layers": 2}, "", "2 prediction heads, and only one is"),
        ("deepseek4", {"deepseek4.attention.compress_ratios": (0, 0, 4, 128, 4)}, "", "compresses"),
        ("deepseek4", {"deepseek4.attention.compress_ratios": (0, 4)}, "", "compresses its keys"),
        ("deepseek4", {"deepseek4.attention.compress_ratios": (0,) * 5}, "", "none of its layers"),
        ("deepseek4", {"deepseek4.hash_layer_count": 5}, "", "chooses experts by tokens"),
    ],
)
def test_heads_that_llama_cpp_cannot_run_are_refused(
    heads: WriteHead, kind: str, changes: dict[str, Any], tensor: str, reason: str
) -> None:
    """By their headers: llama.cpp would end the process for them."""
    header = read_header(heads(kind)["target"])
    tensors = dict(header.tensors)
    if tensor.startswith("-"):
        del tensors[tensor[1:]]
    elif tensor:
        tensors[tensor] = Tensor(tensor, (64, 4), 0)
    changed = replace(header, metadata={**header.metadata, **changes}, tensors=tensors)
    assert why_no_head(header) is None
    assert reason in (why_no_head(changed) or "")


@table(
    ("changes", "tensor", "reason"),
    [
        ({"eagle3.target_layers": (0, 1, 5)}, None, "layers up to 5, the target has 4"),
        ({"eagle3.target_layers": (-1, 1, 2)}, None, "layers up to 2"),
        ({"eagle3.target_hidden_size": 96}, None, "it is for a width of 96"),
        ({"eagle3.embedding_length": 96}, None, "its width differs from the target's"),
        ({}, Tensor("token_embd.weight", (64, 319), 0), "embeddings of 319 tokens"),
        ({}, Tensor("d2t", (321,), 27), "its reduced vocabulary is not"),
    ],
)
def test_eagle_drafts_for_other_targets_are_refused(
    heads: WriteHead, changes: dict[str, Any], tensor: Tensor | None, reason: str
) -> None:
    """By what both headers say."""
    files = heads("llama with EAGLE-3")
    target, header = (read_header(files[role]) for role in ("target", "draft"))
    more = {tensor.name: tensor} if tensor else {}
    changed = replace(
        header, metadata={**header.metadata, **changes}, tensors={**header.tensors, **more}
    )
    assert why_unfit(target, header) is None
    assert reason in (why_unfit(target, changed) or "")


def test_a_step_takes_one_pass_of_a_dflash_draft(
    heads: WriteHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its length; what was accepted is read in a pass of its own."""
    lengths: list[int] = []
    run = Context.run

    def count(self: Context, batch: Batch) -> None:
        if self.model.sizes.kind.is_head:
            lengths.append(batch.count if batch is self.batch else 0)
        run(self, batch)

    with opened(heads("qwen3 in two files", noise=0.1)) as engine:
        tokens_of(engine, max_tokens=2)
        monkeypatch.setattr(Context, "run", count)
        tokens_of(engine, draft_length=4, max_tokens=100)

        blocks = [length for length in lengths if length]
        assert len(blocks) <= engine.stats.steps
        assert len(lengths) <= 2 * len(blocks)
        assert sum(blocks) == engine.stats.drafted + len(blocks)


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("kind", SORTS)
def test_a_head_that_is_not_used_reads_nothing(
    heads: WriteHead, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked again, it reads the last tokens that it missed, and is as often right as ever."""
    counts: list[int] = []
    run = Context.run

    def count(self: Context, batch: Batch) -> None:
        if self.model.sizes.kind.is_head:
            counts.append(batch.count)
        run(self, batch)

    with opened(heads(kind, noise=ALMOST_RIGHT, num_layers=LAYERS[kind])) as engine:
        draft: Any = engine._draft_context
        chunks = engine.generate(PROMPT, drafter="none", temperature=0.0, max_tokens=300)
        text = [*PROMPT, *next(chunks).tokens]
        monkeypatch.setattr(Context, "run", count)
        text += [token for chunk in chunks for token in chunk.tokens]
        assert counts == []
        assert draft.feed.num_waiting <= HEAD_BATCH + 1
        tokens_of(engine, text, draft_length=3, max_tokens=100)
        after_a_pause = engine.stats.acceptance_rate
        assert max(counts) <= HEAD_BATCH
        num_heads = 3 if "in turn" in kind else 1
        assert sum(counts) <= num_heads * (HEAD_BATCH + 3 * 100)
        engine.forget()
        tokens_of(engine, text, draft_length=3, max_tokens=100)
        assert after_a_pause > 0.9 * engine.stats.acceptance_rate


@pytest.mark.slow
def test_a_heads_text_is_the_same_with_a_seed(heads: WriteHead) -> None:
    """With a seed the text is plain decoding's, above temperature 0 as well."""
    with opened(heads("qwen35", noise=0.1)) as engine:
        for seed in range(5):
            options: dict[str, Any] = {"seed": seed, "temperature": 1.0}
            plain = tokens_of(engine, drafter="none", **options)
            assert tokens_of(engine, draft_length=3, **options) == plain
            assert tokens_of(engine, drafter="auto", **options) == plain


@pytest.mark.slow
@table("kind", [*[kind for kind in KINDS if " " not in kind], "qwen35 in two files"])
@table("left_out", ["eh_proj.weight", "enorm.weight", "hnorm.weight"])
def test_a_head_without_a_tensor_is_refused_in_words(
    heads: WriteHead, kind: str, left_out: str
) -> None:
    """The process lives, and one line says what is missing."""
    files = heads(kind, left_out=f"nextn.{left_out}")
    with pytest.raises(SpecchatError) as refused, opened(files) as engine:  # noqa: PT012
        tokens_of(engine, drafter="auto")
        tokens_of(engine)

    assert "\n" not in str(refused.value)
    assert any(word in str(refused.value) for word in ("prediction head", "nextn"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"width": 128}, "its width is 128, the target's is 64"),
        ({"head_width": 32}, "its width of keys is 32, the target's is 16"),
        ({"vocabulary": 330}, "its vocabulary is not the target's"),
        ({"vocabulary": Vocabulary(changed_token=9)}, "its vocabulary is not the target's"),
        ({"num_queries": 1, "num_shared": 1}, r"have \(1, 1\) heads of keys"),
        ({"num_shared": 4}, r"have \(4, 4\) heads of keys, those they share \(2, 2\)"),
        ({"num_queries": 1}, "attention heads that do not fit together"),
        ({"num_heads": 1}, "does not have the layers of an assistant"),
        *[({"left_out": f"{name}.weight"}, f"{name}.weight") for name in ASSISTANT_TENSORS],
    ],
)
def test_an_assistant_that_does_not_fit_is_refused_in_words(
    heads: WriteHead, tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    """llama.cpp would end the process for some, which share the memory of another shape."""
    keys = {
        "num_queries": "attention.head_count",
        "num_shared": "attention.head_count_kv",
        "num_heads": "nextn_predict_layers",
    }
    changed = {keys[each]: options.pop(each) for each in keys if each in options}
    target = heads("gemma4 in two files")["target"]
    draft = write_with_head(tmp_path / "mtp-other.gguf", "gemma4", part="head", **options)
    for key, value in changed.items():
        change_number(draft, f"gemma4-assistant.{key}", value)
    with (
        pytest.raises(SpecchatError, match=reason) as refused,
        opened({"target": target, "draft": draft}),
    ):
        pass

    assert "\n" not in str(refused.value)


def change_number(path: Path, key: str, value: int) -> None:
    """Change a number in a model's metadata."""
    field = gguf.GGUFReader(path, "r+").fields[key]
    field.parts[field.data[0]][0] = value


def test_an_assistant_has_no_use_without_its_target(heads: WriteHead, tiny: WriteModel) -> None:
    """As a target, beside a model of another kind, and beside one with other last layers."""
    draft = heads("gemma4 in two files")["draft"]
    even = heads("gemma4 in two files", num_layers=3)["target"]
    for files, reason in (
        ({"target": draft}, "only a prediction head"),
        ({"target": draft, "draft": draft}, "only a prediction head"),
        ({"target": tiny("gemma3"), "draft": draft}, "its architecture is gemma4, the target's"),
        ({"target": heads("qwen35")["target"], "draft": draft}, "its architecture is gemma4"),
        ({"target": even, "draft": draft}, "not one with sliding and one with full attention"),
    ):
        with pytest.raises(SpecchatError, match=reason), opened(files):
            pass


@pytest.mark.slow
@pytest.mark.usefixtures("full_measurement")
def test_the_first_token_of_a_text_can_be_drafted_after(heads: WriteHead) -> None:
    """An assistant has nothing to read then, and attention to nothing gives no number.

    It has nothing to read while it is measured, either: its passes take their time all the same.
    """
    with opened(heads("gemma4 in two files")) as engine:
        assert engine.prepare()
        known = engine.pacing.knowledge
        assert known.costs_of("head").seconds(1, 0) > 0.1 * known.target.seconds(1, 0)
        for token in (40, 75, 111):
            plain = tokens_of(engine, [token], drafter="none")
            for temperature in (0.0, 1.0):
                options = {"temperature": temperature, "seed": 1}
                assert tokens_of(engine, [token], draft_length=3, **options)
            assert tokens_of(engine, [token], draft_length=3) == plain


@pytest.mark.slow
@table("flash_attention", ["auto", "on", "off"])
@table("cache_type", ["f16", "f32"])
def test_an_assistant_reads_any_layout_of_its_targets_memory(
    heads: WriteHead, flash_attention: str, cache_type: str
) -> None:
    """In long contexts, too, where verification takes another layout than drafting would."""
    types = {"cache_type": cache_type}
    files = heads("gemma4 in two files", noise=ALMOST_RIGHT, own_part=0.8)
    assert rate(files, 1, flash_attention=flash_attention, ctx=4096, **types) > 0.8


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"width": 128}, "its width is 128, the target's is 64"),
        ({"vocabulary": 330}, "its vocabulary is not the target's"),
        ({"vocabulary": Vocabulary(changed_token=9)}, "its vocabulary is not the target's"),
        ({"architecture": "glm4moe"}, "its architecture is glm4moe, the target's is qwen35"),
        ({"left_out": "eh_proj.weight"}, "has no prediction head"),
        ({"left_out": "nextn.enorm.weight"}, "lacks the tensor nextn.enorm.weight"),
        ({"left_out": "ffn_up.weight"}, "ffn_up.weight"),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_a_head_that_does_not_fit_is_refused_in_words(
    heads: WriteHead, tmp_path: Path, options: dict[str, Any], reason: str, whole: bool
) -> None:
    """With another width, vocabulary or architecture, or without a tensor, for any target."""
    target = heads("qwen35" if whole else "qwen35 in two files")["target"]
    draft = write_with_head(tmp_path / "mtp-other.gguf", part="head", **options)
    with (
        pytest.raises(SpecchatError, match=reason) as refused,
        opened({"target": target, "draft": draft}),
    ):
        pass

    assert "\n" not in str(refused.value)


def test_a_head_is_no_target_and_fits_no_other_model(heads: WriteHead, tiny: WriteModel) -> None:
    """Neither alone, nor with a model of another kind, nor two heads."""
    head_file = heads("qwen35 in two files")["draft"]
    for files in (
        {"target": head_file},
        {"target": head_file, "draft": head_file},
        {"target": tiny("llama"), "draft": head_file},
    ):
        with pytest.raises(SpecchatError, match=r"head|architecture"), opened(files):
            pass


def test_a_model_with_a_head_may_have_any_other_draft(heads: WriteHead, tiny: WriteModel) -> None:
    """A draft model or another head is used where it is named, and the text stays."""
    own = heads("qwen35")["target"]
    with opened({"target": own}) as engine:
        plain = tokens_of(engine, drafter="none")
    others = {"head": heads("qwen35 in two files")["draft"], "model": tiny("llama")}
    for kind, draft in others.items():
        with opened({"target": own, "draft": draft}) as engine:
            assert engine.facts.draft_kind == kind
            assert tokens_of(engine, drafter="auto") == tokens_of(engine, drafter=kind) == plain


def test_a_head_is_not_loaded_unless_wanted(heads: WriteHead) -> None:
    """Without it, its drafter says so in one line."""
    with opened(heads("qwen35"), head=False) as engine:
        assert engine.facts.draft is None
        assert tokens_of(engine, drafter="auto")
        with pytest.raises(InvalidOption, match="a prediction head is not loaded"):
            tokens_of(engine)
    with opened(heads("qwen35")) as engine:
        assert engine.facts.draft_bytes > 0
        assert engine.facts.draft_file_bytes == 0
        with pytest.raises(InvalidOption, match="a draft model is not loaded"):
            tokens_of(engine, drafter="model")


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        *(
            (kind, "hidden_states")
            for kind in ("qwen35", "qwen35 in two files", "gemma4 in two files")
        ),
        ("qwen3 in two files", "layer_inputs"),
        *(("llama with EAGLE-3", missing) for missing in ("hidden_states", "layer_inputs")),
    ],
)
def test_a_build_without_the_functions_decodes_without_the_head(
    heads: WriteHead, monkeypatch: pytest.MonkeyPatch, kind: str, missing: str
) -> None:
    """A llama.cpp that does not export them runs everything else; a notice says what is missing."""
    reason = "this build of llama.cpp cannot run prediction heads"
    monkeypatch.setattr(f"specchat.llama.hidden_states.can_read_{missing}", False)
    with opened(heads(kind)) as engine:
        assert engine.facts.draft is None
        assert engine.facts.draft_off_reason == reason
        (notice,) = engine.facts.notices
        assert notice.startswith(f"the prediction head is not used: {reason}; ")
        assert tokens_of(engine, drafter="auto")
        assert engine.stats.drafter == "suffix"
        with pytest.raises(InvalidOption, match=reason):
            tokens_of(engine)


def test_a_build_without_one_of_the_functions_runs_other_heads(
    heads: WriteHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DFlash draft needs no rows of the last layer, and the target's own head no others."""
    for kind, missing in (("qwen35", "layer_inputs"), ("qwen3 in two files", "hidden_states")):
        with monkeypatch.context() as patched:
            patched.setattr(f"specchat.llama.hidden_states.can_read_{missing}", False)
            with opened(heads(kind)) as engine:
                assert engine.facts.draft_kind == "head"
                assert engine.facts.notices == ()


@pytest.mark.slow
def test_engines_with_heads_leave_nothing_behind(heads: WriteHead) -> None:
    """Memory does not grow with engines that are closed, between answers and inside them.

    What a worker of the suite held before may come and go; a leak grows in every part.
    """
    held = []
    part = 2 * len(KINDS)
    for number in range(4 * part):
        kind = KINDS[number % len(KINDS)]
        with opened(heads(kind, num_layers=LAYERS[kind])) as engine:
            chunks = engine.generate(PROMPT, drafter="head", draft_length=3, max_tokens=8)
            next(iter(chunks))
            if number % 2:
                chunks.close()  # type: ignore[attr-defined]
        if number % part == part - 1:
            held.append((native_bytes(), num_objects()))

    growth = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(held)]
    assert min(num_bytes for num_bytes, _ in growth) < part * 4096
    assert min(num_new for _, num_new in growth) < part


@pytest.mark.parametrize("kind", [kind for kind in KINDS if " " not in kind])
@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_head_that_lacks_its_first_tensor_is_refused_before_it_is_loaded(
    heads: WriteHead, tmp_path: Path, kind: str, role: str
) -> None:
    """llama.cpp would take such a file for a model without layers, and crash."""
    files = {
        "target": heads(kind)["target"],
        role: write_with_head(tmp_path / "x.gguf", kind, part="head", left_out="eh_proj.weight"),
    }
    with pytest.raises(SpecchatError, match=r"only a prediction head|no prediction head"):
        LocalEngine(Loading(**files, **EXACT))


def test_the_heads_share_of_the_prompt_is_counted(heads: WriteHead) -> None:
    """It is a part of the prompt's time, which `ask --json` reports."""
    with opened(heads("glm4moe")) as engine:
        tokens_of(engine, list(range(10, 210)))
        stats = engine.stats
        assert 0 < stats.draft_prompt_s < stats.prompt_s
        assert stats.speculation["draft_prompt_s"] == stats.draft_prompt_s
        tokens_of(engine, list(range(10, 210)))
        assert engine.stats.draft_prompt_s == 0


@pytest.mark.slow
@pytest.mark.usefixtures("full_measurement")
def test_a_head_that_is_never_right_is_paused(heads: WriteHead, tmp_path: Path) -> None:
    """Of the right shape, but another model's: the text stays, and the statistics say why."""
    target = heads("qwen35 in two files")["target"]
    draft = write_with_head(tmp_path / "mtp-x.gguf", part="head", seed=5)
    with opened({"target": target, "draft": draft}) as engine:
        assert engine.prepare()
        plain = tokens_of(engine, drafter="none", max_tokens=200)
        for _ in range(3):
            assert tokens_of(engine, draft_length="auto", max_tokens=200) == plain

        reason = engine.stats.draft_off_reason or ""
        assert reason.startswith("the prediction head ")


def test_a_head_that_scales_its_attention_is_not_run(tmp_path: Path) -> None:
    """llama.cpp ends the process for one."""
    path = write_with_head(tmp_path / "x.gguf", "deepseek2", temperature_scale=0.1)
    with opened({"target": path}) as engine:
        assert tokens_of(engine, drafter="auto")
        with pytest.raises(InvalidOption, match="scales its attention by position"):
            tokens_of(engine)


@pytest.mark.parametrize("left_out", ["ffn_up_exps.weight", "ffn_down_exps.weight"])
def test_a_head_of_experts_without_one_of_their_tensors_is_not_run(
    heads: WriteHead, left_out: str
) -> None:
    """llama.cpp takes them for optional, and crashes."""
    with opened(heads("hy_v3", left_out=f"blk.4.{left_out}")) as engine:
        assert tokens_of(engine, drafter="auto")
        with pytest.raises(InvalidOption, match=f"lacks the tensor {left_out}"):
            tokens_of(engine)


@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("is_wanted", [False, True])
@pytest.mark.parametrize("draft", ["none", "alone", "of another kind"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_combination_of_heads_loads_or_is_refused_in_words(
    heads: WriteHead, kind: str, draft: str, is_wanted: bool
) -> None:
    """With and without the wish for the target's own head, whatever is in the files."""
    layers = {"num_layers": LAYERS[kind]}
    is_whole = " " not in kind or kind.endswith("in turn")
    part = heads(f"{kind} in two files" if is_whole else kind, **layers)
    files = {"target": (part if draft == "alone" else heads(kind, **layers))["target"]}
    if draft == "alone":
        files["draft"] = part["draft"]
    elif draft == "of another kind":
        files["draft"] = heads(f"{'hy_v3' if 'qwen' in kind else 'qwen35'} in two files")["draft"]
    if draft == "of another kind":
        with pytest.raises(IncompatibleDraft, match="its architecture is"):
            LocalEngine(Loading(**files, **EXACT, head=is_wanted))
        return
    with opened(files, head=is_wanted) as engine:
        plain = tokens_of(engine, drafter="none", max_tokens=20)
        assert tokens_of(engine, drafter="auto", draft_length=3, max_tokens=20) == plain
        has_head = draft == "alone" or (is_wanted and is_whole)
        assert (engine.facts.draft is not None) == has_head


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"width": 128}, "its width is 128, the target's is 64"),
        ({"vocabulary": 330}, "its vocabulary is not the target's"),
        *[
            ({"left_out": f"{name}.weight"}, f"{name}.weight")
            for name in ("fc", "enc.output_norm", "output_norm", "blk.0.attn_q", "blk.0.ffn_up")
        ],
    ],
)
def test_a_dflash_draft_that_does_not_fit_is_refused_in_words(
    heads: WriteHead, tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    """With another width or vocabulary, or without a tensor."""
    target = heads("qwen3 in two files")["target"]
    draft = write_with_head(tmp_path / "dflash.gguf", "qwen3", part="head", **options)
    with (
        pytest.raises(SpecchatError, match=reason) as refused,
        opened({"target": target, "draft": draft}),
    ):
        pass

    assert "\n" not in str(refused.value)


def test_a_dflash_draft_fits_no_other_target(heads: WriteHead, tiny: WriteModel) -> None:
    """Neither one of an architecture that was not tried, nor one with fewer layers, nor itself."""
    draft = heads("qwen3 in two files")["draft"]
    for target, reason in (
        (tiny("gemma3"), "targets of gemma3 are not supported"),
        (heads("qwen3 in two files", num_layers=3)["target"], "the last layer's output"),
        (heads("qwen3 in two files", num_layers=2)["target"], "layers up to 3, the target has 2"),
        (draft, "only a prediction head"),
    ):
        with pytest.raises(SpecchatError, match=reason), opened({"target": target, "draft": draft}):
            pass


@table(
    ("changes", "tensor", "reason"),
    [
        ({}, "markov_w1.weight", "lacks its block size"),
        (
            {"dflash.sample_from_anchor": 1, "dflash.block_size": 8},
            "markov_w1.weight",
            "which rows",
        ),
        ({}, "selector_hidden.weight", "lacks its conv kernel size"),
        ({**LATTICE, "dflash.selector_top_k": 321}, "selector_hidden.weight", "321 candidates"),
        (LATTICE, "selector_hidden.weight", "selector_hidden.weight in the type i32"),
        ({}, "hc_head_fn.weight", "DeepSeek V4's layers"),
        ({"dflash.hyper_connection.count": 4}, "", "DeepSeek V4's layers"),
        ({}, "d2t", "64-bit integers"),
        ({"dflash.block_count": 0}, "", "it has 0 layers"),
        ({"dflash.nextn_predict_layers": 1}, "", "the layers of a draft"),
        ({"dflash.rope.dimension_count": 3}, "", "rotates 3 of 16 numbers"),
        ({"dflash.rope.dimension_sections": (0, 0, 0, 8)}, "", "parts of positions"),
        ({"dflash.rope.dimension_sections": (8, 0)}, "", "parts of positions"),
        ({"dflash.rope.dimension_sections": (8, -1, 0, 0)}, "", "parts of positions"),
        ({"dflash.rope.dimension_sections": 8}, "", "parts of positions"),
        ({"dflash.rope.dimension_sections": (1000, 1, 1, 1)}, "", "parts of positions"),
        ({"dflash.rope.dimension_sections": (2**31, 2**31, 0, 0)}, "", "parts of positions"),
        ({"dflash.target_layers": ()}, "", "lacks its target's layers"),
        ({"dflash.target_layers": 3}, "", "lacks its target's layers"),
        ({"dflash.block_size": 1}, "", "its block size"),
        ({"tokenizer.ggml.mask_token_id": -1}, "", "its mask token"),
        ({"dflash.attention.head_count_kv": 3}, "", "attention heads"),
        ({"dflash.attention.head_count_kv": 0}, "", "attention heads"),
        ({"dflash.attention.value_length": 8}, "", "its values 8"),
    ],
)
def test_dflash_drafts_of_other_kinds_are_refused(
    heads: WriteHead, changes: dict[str, Any], tensor: str, reason: str
) -> None:
    """By their headers: llama.cpp would end the process for some."""
    header = read_header(heads("qwen3 in two files")["draft"])
    metadata = {**header.metadata, **changes}
    if tensor == "markov_w1.weight" and "dflash.block_size" not in changes:
        del metadata["dflash.block_size"]
    stored = 26 if changes is LATTICE else 0
    more = {tensor: Tensor(tensor, (8,), stored)} if tensor else {}
    changed = replace(header, metadata=metadata, tensors={**header.tensors, **more})
    assert why_no_head(header) is None
    assert reason in (why_no_head(changed) or "")


@table(
    ("name", "stored"), [("output_norm.weight", 1), ("fc.weight", 26), ("blk.0.attn_q.weight", 28)]
)
def test_dflash_drafts_with_types_that_llama_cpp_cannot_use_are_refused(
    heads: WriteHead, name: str, stored: int
) -> None:
    """Before they are loaded: its operators would end the process."""
    header = read_header(heads("qwen3 in two files")["draft"])
    changed = replace(header.tensors[name], stored=stored)
    reason = why_no_head(replace(header, tensors={**header.tensors, name: changed}))
    assert f"the tensor {name} in the type" in (reason or "")


@pytest.mark.slow
@pytest.mark.usefixtures("full_measurement")
@pytest.mark.parametrize(("drafter", "draft_length"), [("head", "auto"), ("auto", 3)])
def test_a_head_that_does_not_fit_is_reported_and_not_used(
    heads: WriteHead,
    tmp_path: Path,
    drafter: str,
    draft_length: int | str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After 64 drafts over all answers, also where pacing only looks now and then."""
    for name in ("CREDIT_SHARE", "MOST_CREDIT"):  # a look at a tiny head may cost any time
        monkeypatch.setattr(way_choice, name, 1e3)
    target = heads("qwen35 in two files")["target"]
    draft = write_with_head(tmp_path / "mtp-x.gguf", part="head", seed=5)
    options = WHOLE | {"max_tokens": 400, "top_k": 0, "seed": 1}
    with opened({"target": target, "draft": draft}) as engine:
        assert engine.prepare()
        plain = tokens_of(engine, drafter="none", **options)
        options |= {"drafter": drafter, "draft_length": draft_length}
        for _ in range(40):
            assert tokens_of(engine, **options) == plain
            engine.forget()
            if "another model" in (engine.stats.draft_off_reason or ""):
                break
        chunks = engine.generate(PROMPT, **options)
        origins = {origin for chunk in chunks for origin in chunk.origins}
        reason = engine.stats.speculation["draft_off"]

        found = re.match(
            r"the prediction head was made for another model: (\d) of its first (\d+) drafts",
            reason,
        )
        assert found
        right, drafts = int(found[1]), int(found[2])
        assert drafts == 64 + 25 * right
        assert origins <= ({"target"} if drafter == "head" else {"target", "suffix"})
        assert drafter == "auto" or engine.stats.drafted == 0
        tokens_of(engine, **options | {"drafter": "auto" if drafter == "head" else "head"})
        assert engine.stats.draft_off_reason == reason


@pytest.mark.slow
@pytest.mark.usefixtures("full_measurement")
@pytest.mark.parametrize(("drafter", "draft_length"), [("head", "auto"), ("auto", 3)])
def test_a_head_that_is_right_now_and_then_is_not_called_unfit(
    heads: WriteHead, drafter: str, draft_length: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One draft in six is right: too few to pay, but more than guessing."""
    for name in ("CREDIT_SHARE", "MOST_CREDIT"):  # a look at a tiny head may cost any time
        monkeypatch.setattr(way_choice, name, 1e3)
    with opened(heads("qwen35", noise=0.8)) as engine:
        assert engine.prepare()
        random = np.random.default_rng(0)
        fit = engine._materials.head_fit
        while fit.num_drafts < 64:  # as many as it takes to call one unfit
            prompt = [int(token) for token in random.integers(10, 300, 12)]
            tokens_of(engine, prompt, drafter=drafter, draft_length=draft_length, max_tokens=300)
            assert "another model" not in (engine.stats.draft_off_reason or "")
            fit = engine._materials.head_fit
        assert 0 < fit.num_right < 0.5 * fit.num_drafts


def test_a_race_says_nothing_of_whether_a_head_fits(heads: WriteHead) -> None:
    """It decodes the same drafts again, and what is tested are independent ones."""
    with opened(heads("qwen35")) as engine:
        options: dict[str, Any] = {"drafter": "head", "draft_length": 3, "max_tokens": 40}
        text = tokens_of(engine, **options)
        fit = engine._materials.head_fit
        num_drafts = fit.num_drafts
        assert num_drafts > 0
        assert tokens_of(engine, replay=Replay(text, len(text)), **options) == text
        assert fit.num_drafts == num_drafts


@pytest.mark.parametrize(("share", "bound"), [(0.1, 0.0025), (0.2, 0.0)])
def test_a_head_of_use_is_hardly_ever_called_unfit(share: float, bound: float) -> None:
    """However often one looks; one that guesses always is, and neither before 64 drafts."""
    random = np.random.default_rng(0)

    def unfit_after(chance: float) -> int | None:
        fit = HeadFit()
        for is_right in random.random(1000) < chance:
            fit.num_drafts += 1
            fit.num_right += bool(is_right)
            if fit.unfit_reason:
                return fit.num_drafts
        return None

    assert all((unfit_after(0.01) or 0) >= 64 for _ in range(100))
    assert sum(unfit_after(share) is not None for _ in range(2000)) <= 1.5 * bound * 2000


@pytest.mark.usefixtures("full_measurement")
def test_a_head_that_does_not_pay_is_not_used_and_says_why(
    heads: WriteHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly always right, but slower than the target."""
    run = Context.run

    def run_slowly(self: Context, batch: Batch) -> None:
        if self.model.sizes.kind.is_head:
            sleep(0.01)
        run(self, batch)

    monkeypatch.setattr(Context, "run", run_slowly)
    with opened(heads("qwen35", noise=ALMOST_RIGHT)) as engine:
        assert engine.prepare()
        tokens_of(engine, draft_length="auto", max_tokens=100)
        stats = engine.stats

        assert stats.drafted < 20
        assert (stats.draft_off_reason or "").startswith("the prediction head is paused: about")
        cost = re.search(
            r"each takes (\d+) % of the time of a plain one", stats.draft_off_reason or ""
        )
        assert cost
        assert int(cost[1]) > 100


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_heads_of_other_kinds_are_refused_before_they_are_loaded(
    heads: WriteHead, tmp_path: Path, kind: str
) -> None:
    """As a target and as a draft, each in one line."""
    path = tmp_path / "mtp-x.gguf"
    writer = gguf.GGUFWriter(path, kind)
    writer.add_block_count(5)
    writer.add_uint32(f"{kind}.nextn_predict_layers", 1)
    writer.add_expert_count(8)
    writer.add_expert_used_count(2)
    writer.add_tensor("blk.4.nextn.eh_proj.weight", np.zeros((32, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    target = heads("qwen35")["target"]
    with pytest.raises(ModelWontLoad, match="only a prediction head"):
        LocalEngine(Loading(target=path, **EXACT))
    with pytest.raises(IncompatibleDraft, match=f"heads of {kind} are not supported"):
        LocalEngine(Loading(target=target, draft=path, **EXACT))
