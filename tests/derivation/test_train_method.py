"""Training a draft: what is checked before, and with PyTorch installed, the training itself."""

from __future__ import annotations

import importlib.util
import itertools
import json
import pickle
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from conftest import WriteModel
from derivation.made_answers import answers
from specchat.catalogue.local_models import derived_folder
from specchat.catalogue.pairs import load_pairs
from specchat.cli import main
from specchat.derivation import answer_store, derived_files, draft_format, train_method
from specchat.derivation.answer_sampling import AnswerSampling, TrainingPrompts
from specchat.derivation.answer_store import AnswerBatch, AnswerStore, Example
from specchat.derivation.draft_format import can_have_head, head_layers, weights_of
from specchat.derivation.train_method import (
    TrainDerivation,
    TrainRequest,
    require_trainable,
    work_folder,
)
from specchat.engine.api import Loading
from specchat.engine.loader import load_pair
from specchat.errors import SpecchatError
from specchat.gguf import writer
from specchat.gguf.origin import DraftOrigin, fingerprints, origin_of
from specchat.gguf.reader import read_header, read_part
from specchat.llama import hidden_states
from specchat.llama.batch_sampling import LIKELIEST, BatchSampler, SampledAnswer
from specchat.llama.library import AbortFlag
from specchat.llama.model_copies import Copy, write_copy
from specchat.options.declarations import Sampling
from specchat.requests.progress import stopping_report
from specchat.system.private_files import make_private

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
QUICK = ("--train", "16s", "--threads", "2", "--ctx", "512", "--keep-slower", "--json")


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the demo's target; what is trained stays in the test's folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(train_method, "LEAST_ANSWERS", 80)
    return load_pairs()["demo"].target


def test_without_pytorch_one_line_says_what_to_install(
    demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is sampled, and no traceback is shown."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert main(["derive", str(demo), *QUICK]) == 1
    errors = capsys.readouterr().err
    assert errors == f"specchat derive: {train_method.MISSING}\n" or train_method.MISSING in errors
    assert errors.count("\n") == 1


def test_a_file_that_is_not_text_is_refused(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names it."""
    wrong = tmp_path / "wrong.txt"
    wrong.write_bytes(b"\xff\xfe\x00\x01")
    assert main(["derive", str(demo), *QUICK, "--text", str(wrong)]) == 2
    assert "wrong.txt cannot be read as text" in capsys.readouterr().err


def test_some_targets_are_refused_with_their_reason(tiny: WriteModel, tmp_path: Path) -> None:
    """Answers of recurrent ones cannot be sampled in batches."""
    origin, draft = DraftOrigin("0" * 64, "a target", "train", "answers"), tmp_path / "draft.gguf"
    write_copy(Copy(str(tiny("llama")), str(draft), metadata=origin.metadata))
    for path, reason in (
        (tiny("mamba"), "recurrent state"),
        (draft, "derived draft itself"),
        (tiny("llama", tokenizer=False), "no vocabulary"),
    ):
        with pytest.raises(SpecchatError, match=reason):
            require_trainable(read_header(path))


def test_the_embedding_is_read_as_numbers(demo: Path) -> None:
    """Each token has a row, and the rows differ."""
    header = read_header(demo)
    rows = weights_of(header, "token_embd.weight")
    assert rows.shape == header.tensors["token_embd.weight"].shape[::-1]
    assert 0.001 < rows.std() < 10
    assert len(np.unique(rows[:, 0])) > 100


@pytest.mark.parametrize("stored", [9, 42], ids=["q8_1", "q2_0"])
def test_an_embedding_of_an_unknown_type_is_refused(
    stored: int, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python package that reads it knows fewer types than llama.cpp."""
    header, name = read_header(demo), "token_embd.weight"
    other = replace(read_part(demo), tensors={name: replace(header.tensors[name], stored=stored)})
    monkeypatch.setattr(draft_format, "read_part", lambda _: other)
    with pytest.raises(SpecchatError, match=r"token_embd\.weight is unreadable"):
        weights_of(header, "token_embd.weight")


def derivation_of(
    target: Path, monkeypatch: pytest.MonkeyPatch, report: list[str]
) -> TrainDerivation:
    """Return a training that begins without PyTorch, too."""
    request = TrainRequest(TrainingPrompts(Loading(target)), Sampling(), 60.0)
    with monkeypatch.context() as patched:
        patched.setattr(importlib.util, "find_spec", lambda _: True)
        return TrainDerivation(request, report.append)


def batches_of(
    derivation: TrainDerivation, sampling: AnswerSampling | None = None, seconds: float = 60.0
) -> Iterator[AnswerBatch]:
    """Return what an untrained network is trained on; time is short after some seconds."""
    trainee: Any = SimpleNamespace(training=SimpleNamespace(steps=0), begin=lambda _: None)
    store, none = AnswerStore(derivation.work), SimpleNamespace(why_full="", check=int, stop=int)
    return derivation._batches(trainee, store, cast(Any, sampling or none), monotonic() + seconds)


def test_training_can_be_stopped_before_the_first_answers(
    demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at once, though sampling goes on."""
    derivation = derivation_of(demo, monkeypatch, [])
    monkeypatch.setattr(AnswerStore, "batches", lambda *_: pytest.fail("there are no answers"))
    derivation.stop()
    assert list(batches_of(derivation)) == []


@pytest.mark.parametrize("count", [50, 0])
def test_no_more_answers_are_awaited_than_there_is_room_for(
    count: int, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampling ends, and training begins with fewer than usual; without any the reason is given."""
    derivation = derivation_of(demo, monkeypatch, [])
    monkeypatch.setattr(answer_store, "LARGEST_STORE", -1)
    monkeypatch.setattr(train_method, "LEAST_ANSWERS", 1000)
    store, began = AnswerStore(derivation.work), monotonic()
    if count:
        store.add(answers(0, count))
    prompts = TrainingPrompts(Loading(demo, threads=1))
    with AnswerSampling(prompts, derivation.work, store, 1) as sampling:
        batches = batches_of(derivation, sampling, seconds=600.0)
        if count:
            assert next(batches).tokens.size
        else:
            with pytest.raises(SpecchatError, match="GB of answers: make room first"):
                next(batches)
    assert monotonic() - began < 200


class FinishedNetwork:
    """Stands in for a network in training: its file is ready, and it agrees with half of all."""

    kind, method, checkpoint, batches, layers = "draft", "train", "checkpoint.pt", 1, ()

    def __init__(self, draft: Path) -> None:
        self.training, self._draft = self, draft
        self.steps, self.seconds, self.agreement = 0, 0.0, 0.0

    def begin(self, examples: Sequence[Example]) -> None:
        """Need nothing of the examples."""
        assert examples

    def file(self) -> bytes:
        """Return the draft."""
        return self._draft.read_bytes()

    def step(self, batches: Sequence[AnswerBatch], _: float) -> None:
        """Count a step, which takes some time."""
        assert batches[0].tokens.size
        self.steps += 1
        sleep(0.2)

    def agreements(self, examples: Sequence[Example]) -> tuple[Any, Any]:
        """Return that half of all tokens agree."""
        return np.full(len(examples), 0.5), np.full((1, 20 * bool(examples)), 0.5)

    def keep_if_better(self, _: float, agreement: float) -> None:
        """Take the agreement over."""
        self.agreement = agreement

    def restore(self, _: Path) -> None:
        """Begin anew."""

    def save(self, place: Path) -> None:
        """Write a checkpoint."""
        place.write_bytes(b"")

    def use_threads(self, count: int) -> None:
        """Take all threads once sampling is over."""
        assert count


@pytest.mark.slow
def test_what_was_trained_is_measured_and_kept(
    demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its origin; only the network is made beforehand, and answers of an earlier run."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda *name: name == ("torch",) or find(*name)
    )
    network = FinishedNetwork(load_pairs()["demo"].draft or demo)
    monkeypatch.setattr(TrainDerivation, "_trainee", lambda _: network)
    monkeypatch.setattr(derived_files, "NUM_ROUNDS", 2)
    folder = work_folder(read_header(demo))
    make_private(folder)
    AnswerStore(folder).add(answers(0, 90))
    assert main(["derive", str(demo), "--train", "2s", *QUICK[2:]]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["steps"] == network.steps > 0
    assert made["answers"] >= 87  # those that are not held out
    assert made["predicted"]["greedy"] > 0.5
    assert made["predicted"]["speedup"] >= 1.0
    (path,) = derived_folder().iterdir()
    assert made["path"] == str(path)
    origin = origin_of(read_header(path))
    assert origin is not None
    assert origin.target_sha256 == fingerprints(read_header(demo)).model
    assert origin.method.startswith("train: ")
    assert origin.speedup == pytest.approx(made["predicted"]["speedup"], abs=0.001)
    assert read_header(path).name == f"{read_header(demo).name}, trained draft"


@needs_torch
@pytest.mark.parametrize(
    ("can_read_layer_inputs", "free", "line"),
    [
        (True, None, "training a prediction head"),
        (True, 1, "training a small model: a head needs 0.1 GB more memory than is free"),
        (False, 1, "training a small model"),
    ],
)
def test_a_line_says_what_is_trained(
    can_read_layer_inputs: bool,
    free: int | None,
    line: str,
    demo: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A small model may be trained for want of memory alone, and the user could make room."""
    monkeypatch.setattr(hidden_states, "can_read_layer_inputs", can_read_layer_inputs)
    monkeypatch.setattr(train_method, "available_bytes", lambda: free)
    lines: list[str] = []
    derivation_of(demo, monkeypatch, lines)._trainee()
    assert lines == [line]


@needs_torch
def test_a_head_that_was_begun_is_not_given_up_for_a_small_model(
    demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where memory is short, one line says how much, and hours of training stay of use."""
    monkeypatch.setattr(train_method, "available_bytes", lambda: 1)
    derivation = derivation_of(demo, monkeypatch, [])
    (derivation.work / "head.pt").write_bytes(b"hours of training")
    assert main(["derive", str(demo), *QUICK]) == 1
    errors = capsys.readouterr().err
    assert "training the head further needs 0.1 GB more memory than is free: close" in errors
    assert errors.count("\n") == 1
    assert [path.name for path in derivation.work.iterdir()] == ["head.pt"]


@needs_torch
@pytest.mark.parametrize("architecture", ["eagle3", "llama"])
def test_a_draft_is_trained_kept_and_trained_on(
    architecture: str,
    demo: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first run makes a draft with its origin; the next goes on with its answers and steps.

    The origin mentions the user's own texts as long as answers to them are trained on. A small
    model is trained where llama.cpp cannot run a head.
    """
    monkeypatch.setattr(hidden_states, "can_read_layer_inputs", architecture == "eagle3")
    (tmp_path / "own.txt").write_text("Some words of mine. " * 50)
    assert main(["derive", str(demo), *QUICK, "--text", str(tmp_path / "own.txt")]) == 0
    first = json.loads(capsys.readouterr().out)
    draft = read_header(Path(first["path"]))
    origin = origin_of(draft)
    assert origin is not None
    assert (origin.target_sha256, origin.method[:6]) == (
        fingerprints(read_header(demo)).model,
        "train:",
    )
    assert (first["steps"] > 0, first["answers"] >= 78) == (True, True)
    assert draft.architecture == architecture
    share = 0.35 if architecture == "eagle3" else 0.2  # the demo's head is as small as heads are
    assert draft.num_bytes < share * demo.stat().st_size
    assert [path.name for path in derived_folder().iterdir()] == [Path(first["path"]).name]

    assert main(["derive", str(demo), *QUICK]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["steps"] > first["steps"]
    assert second["answers"] >= first["answers"]
    again = origin_of(read_header(Path(second["path"])))
    assert again is not None
    assert origin.data.endswith(" answers to specchat's prompts, and the user's texts")
    assert again.data.endswith(", and the user's texts")
    work = work_folder(read_header(demo))
    assert all(path.stat().st_mode & 0o077 == 0 for path in work.iterdir())
    assert "predicted" in (work / "training.log").read_text()


@needs_torch
def test_the_time_is_over_although_nothing_was_sampled(
    demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with a large target on a slow machine: one line says so, and no draft is left."""
    monkeypatch.setattr(AnswerSampling, "_sample", lambda _: None)

    assert main(["derive", str(demo), "--train", "1s", *QUICK[2:]]) == 1
    assert "no answers could be sampled in this time" in capsys.readouterr().err
    assert list(derived_folder().iterdir()) == []


@needs_torch
def test_training_agrees_more_and_more_and_resumes_exactly(tmp_path: Path) -> None:
    """On a small language agreement rises; a restored training goes on with the same steps."""
    from specchat.derivation.draft_network import Shape
    from specchat.derivation.draft_training import DraftDistillation

    shape = Shape(64, 32, 1, 2, 1, 32)
    training = DraftDistillation(shape, threads=1, seed=1)
    batches = cycle_batches()
    losses = [training.step([next(batches)], 0.1) for _ in range(120)]
    assert losses[-1] < 0.5 * losses[0]
    place = tmp_path / "checkpoint.pt"
    training.keep_if_better(1.0, 0.5)
    training.save(place)
    assert place.stat().st_mode & 0o077 == 0
    other = DraftDistillation(shape, threads=1, seed=2)
    assert other.restore(place)
    assert (other.steps, other.agreement) == (120, 0.5)
    for name, weights in training.weights().items():
        np.testing.assert_array_equal(weights, other.weights()[name])
    assert not DraftDistillation(Shape(64, 64, 1, 2, 1, 32), threads=1, seed=1).restore(place)
    for damaged in (place.read_bytes()[:1000], b"no checkpoint", pickle.dumps([1], 2)):
        place.write_bytes(damaged)
        assert not DraftDistillation(shape, threads=1, seed=1).restore(place)


@needs_torch
@pytest.mark.parametrize(
    "changes",
    [
        {"best": None},
        {"best": {}, "network": None},
        {"best": {"token_embd.weight": [1.0]}},
        {"network": {}},
        {"network": "weights"},
        {"optimizers": []},
        {"optimizers": [{}, {}]},
        {"optimizers": "swapped"},
        {"optimizers": "emptied"},
        {"progress": [1, 2.0]},
        {"progress": None},
        {"shape": None},
    ],
    ids=str,
)
def test_a_checkpoint_without_all_parts_changes_nothing(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """Training begins anew, as it does without one; None stands for a part that is missing."""
    import torch

    from specchat.derivation.draft_network import Shape
    from specchat.derivation.draft_training import DraftDistillation

    shape, place = Shape(64, 32, 1, 2, 1, 32), tmp_path / "checkpoint.pt"
    training = DraftDistillation(shape, threads=1, seed=1)
    training.step([next(cycle_batches())], 0.1)
    training.keep_if_better(1.0, 0.5)
    training.save(place)
    state = torch.load(place, weights_only=True)
    if changes == {"optimizers": "swapped"}:
        changes = {"optimizers": state["optimizers"][::-1]}
    elif changes == {"optimizers": "emptied"}:
        groups = [{**each, "param_groups": []} for each in state["optimizers"]]
        changes = {"optimizers": groups}
    state = {key: each for key, each in {**state, **changes}.items() if each is not None}
    torch.save(state, place)

    other = DraftDistillation(shape, threads=1, seed=2)
    before = {name: weights.copy() for name, weights in other.weights().items()}
    assert not other.restore(place)
    assert (other.steps, other.best) == (0, {})
    assert not any(optimizer.state for optimizer, _ in other._optimizers)
    for name, weights in other.weights().items():
        np.testing.assert_array_equal(weights, before[name])
    other.step([next(cycle_batches())], 0.1)


@needs_torch
def test_a_head_learns_one_token_and_then_the_next(tmp_path: Path) -> None:
    """It agrees more and more, further ahead only once that is trained, and goes on exactly."""
    import torch

    from specchat.derivation.head_network import HeadShape
    from specchat.derivation.head_training import HeadDistillation

    shape = HeadShape(32, 2, 1, 16, 64, 60)
    embedding = np.random.default_rng(1).normal(size=(64, 32)).astype(np.float32) * np.float32(0.3)

    def head(seed: int) -> HeadDistillation:
        made = HeadDistillation(shape, embedding, threads=1, seed=seed)
        made.begin_with(embedding, np.ones(32, np.float32), np.arange(60))
        return made

    training, example = head(1), next(cycle_batches(embedding))
    for _ in range(240):
        training.step([example], 0.1)
    with torch.no_grad():
        is_best, overlaps = training._agreement(example)
    assert is_best.float().mean() > 0.9
    assert overlaps[0].mean() > 0.8
    assert overlaps[1:].mean() < 0.1
    for _ in range(200):
        training.step([example], 0.6)
    with torch.no_grad():
        _, overlaps = training._agreement(example)
    assert overlaps.mean(1).min() > 0.5

    place = tmp_path / "head.pt"
    training.keep_if_better(1.0, 0.5)
    training.save(place)
    losses = []
    for seed in (2, 3):
        other = head(seed)
        assert other.restore(place)
        torch.manual_seed(0)
        losses.append(other.step([example], 0.1))
    assert losses[0] == losses[1]
    assert losses[0] > training.step([example], 0.1)  # the later tokens are not left out again


@needs_torch
def test_the_end_of_a_heads_training_is_for_the_overlap() -> None:
    """What is added to the cross entropy is the share of tokens that would be rejected at 0.8."""
    import torch

    from specchat.derivation.head_training import OVERLAP_SHARE, _loss_of

    chance = np.random.default_rng(3)
    logits, places = chance.normal(size=(5, 7)), np.array([[2, 5, -1], *4 * [[0, 3, 6]]])
    wanted = chance.dirichlet(np.ones(3), size=5)
    scores, found, logs = (torch.tensor(each) for each in (logits, places, np.log(wanted)))
    plain, sharpened = (float(_loss_of(scores, found, logs, sharpness)) for sharpness in (0.0, 0.5))

    offered = np.exp(logits / 0.8)
    offered = np.take_along_axis(offered / offered.sum(1, keepdims=True), places.clip(0), 1)
    wanted = wanted ** (1 / 0.8)
    wanted /= wanted.sum(1, keepdims=True)
    overlap = np.minimum(wanted, offered * (places >= 0)).sum()
    assert sharpened - plain == pytest.approx(0.5 * OVERLAP_SHARE * (5 - overlap))


@needs_torch
def test_llama_cpp_runs_a_trained_head_as_it_was_trained(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its logits are those of training, from the target's rows and from own ones.

    With random weights that do not just repeat the token, one row off would change them.
    """
    import torch
    from torch.nn import functional

    from specchat.derivation.head_training import HeadDistillation
    from specchat.derivation.trainee import HeadTrainee

    for name, kind in (("quantized", "Q4_0"), ("quantized_well", "Q8_0")):
        monkeypatch.setattr(writer, name, lambda weights: weights.tobytes())
        monkeypatch.setattr(writer, kind, writer.F32)
    trainee, place = HeadTrainee(read_header(demo), 1), tmp_path / "head.gguf"
    trainee.begin([])
    assert isinstance(trainee.training, HeadDistillation)
    network = trainee.training.network
    with torch.no_grad():
        for name, weights in network.blk.named_parameters():
            weights.mul_(1.0 if "norm" in name else 4.0)
    place.write_bytes(trainee.file())
    with ExitStack() as stack:
        loading = Loading(demo, place, threads=1, ctx=512, learn=False)
        pair = load_pair(loading, AbortFlag(), stack, stopping_report(None))
        target, head = pair.context, pair.draft_context
        assert head is not None
        text = "Once upon a time there was a small house by the sea, and an old man lived in it."
        tokens = target.model.vocabulary.tokenize(text, add_special=True, parse_special=False)
        with BatchSampler(target.model, 1, 128, threads=1, seed=0, layers=trainee.layers) as all_:
            (answer,) = all_.answers([SampledAnswer([*tokens, 0], 0.0)], 1)
        ours = []
        for end in range(4, len(tokens)):
            target.prefill(tokens[: end - 1])
            head.rollback(head.count_known(tokens[: end - 1]))
            ours.append([head.evaluate(tokens[head.length : end], 1)[0].copy()])
            ours[-1].append(head.evaluate(tokens[end : end + 1], 1)[0].copy())
            head.rollback(end - 1)
    embedded = torch.from_numpy(weights_of(read_header(demo), "token_embd.weight"))[tokens][None]
    read = torch.from_numpy(np.concatenate(answer.inputs)[None, : len(tokens)].astype(np.float32))
    with torch.no_grad():
        runs = [
            functional.linear(rows, network.output.weight)[0].numpy()
            for rows in network.runs(embedded, read, 2)
        ]
    for end, (of_target, own) in enumerate(ours, 4):
        assert np.corrcoef(of_target, runs[0][end - 2])[0, 1] > 0.999
        assert np.corrcoef(own, runs[1][end - 1])[0, 1] > 0.999
        assert np.corrcoef(of_target, runs[0][end - 3])[0, 1] < 0.99


def test_heads_are_for_targets_of_usual_sizes(demo: Path, tiny: WriteModel) -> None:
    """The layers it reads differ; odd sizes and unreadable tensors are for small models."""
    header = read_header(demo)
    assert can_have_head(header)
    assert not can_have_head(read_header(tiny("gemma3")))
    kind = header.architecture
    for changes in (
        {"attention.head_count": (6, 6)},
        {"attention.head_count_kv": 4},
        {"embedding_length": 100},
        {"block_count": 3},
    ):
        metadata = {f"{kind}.{key}": value for key, value in changes.items()}
        assert not can_have_head(replace(header, metadata={**header.metadata, **metadata}))
    unread = replace(header.tensors["output_norm.weight"], stored=9)
    tensors = {**header.tensors, "output_norm.weight": unread}
    assert not can_have_head(replace(header, tensors=tensors))
    for num_layers in range(4, 40):
        counted = {**header.metadata, f"{kind}.block_count": num_layers}
        first, second, third = head_layers(replace(header, metadata=counted))
        assert 0 < first < second < third < num_layers


def cycle_batches(embedding: NDArray[np.float32] | None = None) -> itertools.cycle[AnswerBatch]:
    """Return texts in which each token is followed by the next number.

    With an embedding, layers read that of the token three times.
    """
    tokens = np.array([[(first + place) % 60 for place in range(16)] for first in range(60)])
    likeliest = np.zeros((60 * 15, LIKELIEST), np.int32)
    likeliest[:, 0] = tokens[:, 1:].reshape(-1)
    logs = np.full(likeliest.shape, -np.inf, np.float32)
    logs[:, 0] = -0.01
    places = np.arange(60 * 16).reshape(60, 16)[:, :-1].reshape(-1)
    inputs = None if embedding is None else np.tile(embedding[tokens], 3).astype(np.float16)
    one = AnswerBatch(tokens.astype(np.int32), places.astype(np.int32), likeliest, logs, inputs)
    return itertools.cycle([one])
