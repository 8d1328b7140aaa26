"""Which draft is taken for a target, among real models of several families and sizes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from conftest import WriteModel
from foreign_files import write_header
from local_folders import GGUF, put, put_in_hub, put_in_ollama
from scripts.support.quantised_model import quantised
from scripts.support.tiny_gguf import write_model, write_with_head
from scripts.support.tiny_gguf.vocabulary import Vocabulary
from specchat.catalogue.draft_choice import Drafts, find_drafts
from specchat.catalogue.header_cache import HeaderCache, header_cache_path
from specchat.catalogue.known_heads import known_heads
from specchat.catalogue.pairs import save_pair
from specchat.gguf.origin import DraftOrigin, fingerprints
from specchat.gguf.reader import read_header
from specchat.llama.model_copies import Copy, write_copy

Place: TypeAlias = Callable[..., Path]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, a cache and settings of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home/.cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home/.config"))
    return tmp_path / "home"


@pytest.fixture
def place(tiny: WriteModel, tmp_path: Path) -> Place:
    """Return what puts a tiny model into a folder under a name."""

    def put_model(name: str, architecture: str = "llama", **options: Any) -> Path:
        path = tmp_path / "models" / name
        path.parent.mkdir(exist_ok=True)
        return Path(shutil.copy(tiny(architecture, **options), path))

    return put_model


@pytest.fixture
def target(place: Place) -> Path:
    """A target of 3.3 MB."""
    return place("Big-8B-Instruct-Q4_K_M.gguf", width=128, feed_forward=512, num_layers=8)


def best(target: Path) -> str | None:
    """Return the name of the best draft for a target."""
    found = find_drafts(target).best
    return found.model.name if found else None


def test_the_draft_beside_a_target_is_taken(place: Place, target: Path) -> None:
    """The choice comes with its reason."""
    place("small.gguf")

    found = find_drafts(target).best
    assert found
    assert found.model.name == "small.gguf"
    assert found.why == f"beside it: same vocabulary, 1/{round(1 / found.share)} of its size"
    assert found.share == pytest.approx(found.model.path.stat().st_size / target.stat().st_size)


def test_a_target_alone_has_no_draft(target: Path) -> None:
    """A target that does not exist has none either."""
    assert find_drafts(target) == Drafts((), ())
    assert find_drafts(target.with_name("none.gguf")) == Drafts((), ())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"vocabulary": Vocabulary(changed_token=300), "num_layers": 10}, "another vocabulary"),
        ({"vocabulary": Vocabulary(eos=0)}, ""),
        ({"vocabulary": 448}, ""),
        (
            {"vocabulary": Vocabulary(size=448, changed_token=300), "num_layers": 10},
            "another vocabulary",
        ),
        ({"vocabulary": 449, "num_layers": 10}, "another vocabulary"),
        ({"tokenizer": False}, "it has no vocabulary"),
        ({"width": 128, "feed_forward": 512, "num_layers": 5}, "too large, 64 % of its size"),
    ],
    ids=str,
)
def test_a_draft_that_does_not_fit_is_not_taken(
    place: Place, target: Path, options: dict[str, Any], reason: str
) -> None:
    """A draft must fit by llama.cpp's rule for vocabularies, or be small, and by size."""
    place("other.gguf", **options)

    found = find_drafts(target)
    assert [message for _, message in found.unfit] == ([reason] if reason else [])
    assert (found.best is None) == bool(reason)


def test_without_a_draft_of_its_vocabulary_a_small_one_of_another_is_taken(
    place: Place, target: Path
) -> None:
    """The likeliest whose tokens are mostly common; one of the target's vocabulary is better."""
    place("Big-1B-foreign.gguf", vocabulary=Vocabulary(size=700, endings=("x",)))
    place("Other-1B.gguf", "qwen3", vocabulary=Vocabulary(sentencepiece=True))
    place("Big-2B.gguf", vocabulary=Vocabulary(changed_token=300))

    found = find_drafts(target)
    assert [each.model.name for each in found.fitting] == ["Big-2B.gguf"]
    assert found.fitting[0].why.startswith(
        "beside it: another vocabulary, 99 % of it in common, 1/"
    )
    assert {model.name: why for model, why in found.unfit} == {
        "Big-1B-foreign.gguf": "another vocabulary",
        "Other-1B.gguf": "another vocabulary",
    }
    (target.parent / "Big-2B.gguf").unlink()
    assert best(target) in {"Other-1B.gguf", "Big-1B-foreign.gguf"}

    place("Unlike-3B.gguf", "qwen3")
    assert best(target) == "Unlike-3B.gguf"


def test_a_draft_with_too_little_in_common_is_not_taken(place: Place) -> None:
    """However small it is."""
    options = {"width": 128, "feed_forward": 512, "num_layers": 8}
    target = place("target.gguf", vocabulary=Vocabulary(size=900), **options)
    place("draft.gguf", vocabulary=Vocabulary(size=900, endings=("x",)))

    found = find_drafts(target)
    assert found.best is None
    assert [why for _, why in found.unfit] == ["another vocabulary"]


def test_models_without_any_vocabulary_are_no_pair(place: Place, home: Path) -> None:
    """Nothing in two empty lists of tokens differs, and nothing can be said with them."""
    target = put(home / "alone/target.gguf", GGUF + bytes(1000))
    put(home / "alone/small.gguf")

    found = find_drafts(target)
    assert found.best is None
    assert [message for _, message in found.unfit] == ["it has no vocabulary"]


def test_families_decide_among_drafts_that_fit(place: Place, target: Path) -> None:
    """The architecture counts first, then the words of the models' names."""
    place("Other-1B-Q8_0.gguf", "qwen3")
    assert best(target) == "Other-1B-Q8_0.gguf"
    place("Other-2B-Q8_0.gguf")
    assert best(target) == "Other-2B-Q8_0.gguf"
    place("Big-1B-Instruct-Q8_0.gguf", perturb=0.1)
    assert best(target) == "Big-1B-Instruct-Q8_0.gguf"


def test_sizes_decide_within_a_family(place: Place, target: Path) -> None:
    """A half of the target drafts slowly: a smaller one is taken, though nothing else differs."""
    place("Big-3B-Instruct.gguf", width=128, feed_forward=256, num_layers=4)
    assert best(target) == "Big-3B-Instruct.gguf"
    place("Big-1B-Instruct.gguf")
    assert best(target) == "Big-1B-Instruct.gguf"


def test_of_a_mixture_only_the_experts_at_work_count(place: Place, tmp_path: Path) -> None:
    """A draft that is small beside the file may be as large as what a token is computed with."""
    mixture = place("mixture.gguf", "qwen3moe", width=128, feed_forward=512, num_layers=8)
    with HeaderCache() as cache:
        share = cache.of(mixture).active_share
    draft = place("draft.gguf")

    (found,) = find_drafts(mixture).fitting or [None]
    expected = draft.stat().st_size / mixture.stat().st_size / share
    assert share < 1
    assert found is None or found.share == pytest.approx(expected)


def test_what_the_catalogue_pairs_comes_first(place: Place, target: Path, home: Path) -> None:
    """Wherever a program put the files: by name and size."""
    place("Big-1B-Instruct.gguf")
    paired = place("Paired-Q8.gguf", "qwen3")
    size = target.stat().st_size
    put(
        home / ".config/specchat/models.toml",
        f"""
        [pair.mine]
        description = "mine"
        target = {{ repository = "a/b", file = "sub/{target.name}", bytes = {size} }}
        draft = {{ repository = "a/c", file = "paired-q8.gguf" }}
        """.encode(),
    )

    found = find_drafts(target).best
    assert found
    assert found.model.path == paired
    assert found.why.startswith("beside it: the catalogue pairs them, same vocabulary, 1/")


def test_a_target_that_the_catalogue_leaves_alone_is_left_alone(
    place: Place, target: Path, home: Path
) -> None:
    """The reason is reported, and so are the drafts that would fit."""
    place("Big-1B-Instruct.gguf")
    put(
        home / ".config/specchat/models.toml",
        f"""
        [pair.mine]
        description = "mine"
        target = "{target}"
        """.encode(),
    )

    found = find_drafts(target)
    assert found.best is None
    assert found.advice == "the catalogue knows no draft that pays"
    assert len(found.fitting) == 1


def test_a_damaged_catalogue_of_the_users_does_not_stand_in_the_way(
    place: Place, target: Path, home: Path
) -> None:
    """The damage is reported when a pair is loaded."""
    place("small.gguf")
    put(home / ".config/specchat/models.toml", b"[pair")

    assert best(target) == "small.gguf"


def test_drafts_of_other_programs_are_found(
    place: Place, target: Path, home: Path, tiny: WriteModel
) -> None:
    """The reason names the program that a draft belongs to."""
    put_in_ollama(home / ".ollama/models", tiny("llama").read_bytes())

    found = find_drafts(target).best
    assert found
    assert found.model.name == "tiny:latest"
    assert found.why.startswith("from Ollama: same vocabulary")


def test_other_files_and_damaged_ones_are_not_drafts(place: Place, target: Path) -> None:
    """Each is left out for its own reason, and the target is not its own draft."""
    whole = place("small.gguf").read_bytes()
    put(target.parent / "small.gguf", whole[:-100])
    put(target.parent / "text.gguf", b"no GGUF file")
    (target.parent / "link.gguf").symlink_to(target)

    reasons = {model.name: reason for model, reason in find_drafts(target).unfit}
    assert reasons == {
        "small.gguf": "its file is damaged",
        "text.gguf": "its file is damaged",
    }


def test_what_headers_said_is_kept_and_noticed_to_change(place: Place, target: Path) -> None:
    """In a file that is the user's alone; nonsense in it is as if nothing had been kept."""
    draft = place("small.gguf")
    assert best(target) == "small.gguf"
    assert header_cache_path().stat().st_mode & 0o077 == 0
    kept = header_cache_path().read_bytes()
    assert best(target) == "small.gguf"
    assert header_cache_path().read_bytes() == kept

    shutil.copy(place("other.gguf", tokenizer=False), draft)
    (draft.parent / "other.gguf").unlink()
    assert best(target) is None
    for nonsense in (b"", b"[1]", b'{"x": [[1, 2], 7]}', b"\xff", b"[" * 90_000):
        header_cache_path().write_bytes(nonsense)
        assert best(target) is None


@pytest.mark.parametrize("is_older", [True, False], ids=["older", "without a number"])
def test_facts_of_another_version_are_read_again(place: Place, *, is_older: bool) -> None:
    """It may have read the same header differently, as one did for files without their end."""
    model = place("m.gguf")
    with HeaderCache() as cache:
        cache.of(model)
    kept = json.loads(header_cache_path().read_text())
    kept["models"][str(model)][1]["kind"] = "projector"
    header_cache_path().write_text(json.dumps(kept))
    with HeaderCache() as cache:
        assert cache.of(model).kind == "projector"

    kept["format"] -= 1
    header_cache_path().write_text(json.dumps(kept if is_older else kept["models"]))
    with HeaderCache() as cache:
        assert cache.of(model).kind == "chat"


@pytest.mark.parametrize(
    ("architecture", "options", "kind"),
    [
        ("llama", {}, "chat"),
        ("bert", {}, "embedding"),
        ("qwen3", {"qwen3.pooling_type": 3}, "embedding"),
        ("llama", {"general.type": "adapter"}, "adapter"),
        ("clip", {}, "projector"),
        ("flux", {}, "other"),
    ],
    ids=str,
)
def test_the_kind_of_a_file_comes_from_its_header(
    tmp_path: Path, architecture: str, options: dict[str, str | int], kind: str
) -> None:
    """Embedding models, adapters and projectors are not listed for chatting."""
    path = tmp_path / "x.gguf"
    write_header(path, architecture, options)

    with HeaderCache() as cache:
        assert cache.of(path).kind == kind


def test_a_prediction_head_is_not_a_model_to_chat_with(tmp_path: Path) -> None:
    """A prediction head is listed neither as a target nor as a draft."""
    head = write_model(tmp_path / "mtp.gguf", "qwen35", is_head_only=True)
    with HeaderCache() as cache:
        assert cache.of(head).kind == "other"


def test_a_head_beside_its_target_comes_first(tmp_path: Path) -> None:
    """By its name, if it fits; a target with a head of its own needs neither."""
    target = write_with_head(tmp_path / "qwen.gguf", part="trunk", quantisation="q8_0")
    head = write_with_head(tmp_path / "mtp-qwen.gguf", part="head")
    write_with_head(tmp_path / "mtp-other.gguf", part="head", width=128)
    found = find_drafts(target)
    assert found.best is not None
    assert found.best.model.path == head
    assert found.best.why == "beside it: a prediction head for it"
    assert [(model.name, "its width is 128" in why) for model, why in found.unfit] == [
        ("mtp-other.gguf", True)
    ]

    small = write_with_head(tmp_path / "Qwen3-4B.gguf", "qwen3", part="trunk", quantisation="q8_0")
    block = write_with_head(tmp_path / "Qwen3-4B-DFlash.gguf", "qwen3", part="head")
    found = find_drafts(small)
    assert found.best is not None
    assert found.best.model.path == block
    llama = write_with_head(tmp_path / "llama.gguf", "llama", part="trunk", quantisation="q8_0")
    eagle = write_with_head(tmp_path / "Llama-EAGLE3.gguf", "llama", part="head")
    found = find_drafts(llama)
    assert found.best is not None
    assert found.best.model.path == eagle
    assert found.best.why == "beside it: a prediction head for it"
    whole = write_with_head(tmp_path / "whole.gguf")
    assert find_drafts(whole).best is None
    assert find_drafts(whole).advice == "it has a prediction head of its own"


def test_a_head_of_another_program_is_found_by_the_models_name(home: Path, tmp_path: Path) -> None:
    """Of this family and size, wherever it is and whatever Ollama calls its file."""
    (tmp_path / "parts").mkdir()
    content = write_with_head(tmp_path / "parts/head.gguf", part="head").read_bytes()
    target = write_with_head(tmp_path / "My-Tall-8B-tuned-Q4_0.gguf", part="trunk")
    hub, studio = home / ".cache/huggingface/hub", home / ".lmstudio/models"
    ollama = "registry.ollama.ai/library/tall/8b-mtp"
    places: dict[str, Callable[[], Path]] = {
        "the Hugging Face cache": lambda: put_in_hub(hub, "a/b", "MTP/mtp-Tall-8B.gguf", content),
        "LM Studio": lambda: put(studio / "a/b/mtp-Tall-8B-Q8_0.gguf", content),
        "llama.cpp": lambda: put(home / ".cache/llama.cpp/Tall-8B-head.gguf", content),
        "Ollama": lambda: put_in_ollama(home / ".ollama/models", content, ollama),
    }
    for others in ("mtp-Tall-70B.gguf", "mtp-Small-8B.gguf"):
        put(studio / f"a/b/{others}", content + others.encode())
    assert find_drafts(target).best is None
    for where, place_head in places.items():
        path = place_head()
        found = find_drafts(target)
        assert found.best is not None
        assert found.best.why == f"from {where}: a prediction head for it"
        assert found.best.model.path == path
        assert [reason for _, reason in found.unfit] == ["a prediction head for another model"] * 2
        path.unlink()


def test_a_base_model_takes_no_head_of_its_instruct_model(home: Path, tmp_path: Path) -> None:
    """Neither from another folder nor from its own, whichever of the two has a mark."""
    content = write_with_head(tmp_path / "any.gguf", part="head").read_bytes()
    studio = home / ".lmstudio/models/a"
    for head, base, others in (
        ("mtp-Tall-8B-it", "Tall-8B", ("Tall-8B-it-qat", "My-Tall-8B-tuned")),
        ("mtp-Tall-8B", "Tall-8B-Base", ("Tall-8B-Instruct", "Tall-8B")),
    ):
        folder = tmp_path / head
        folder.mkdir()
        targets = {
            name: write_with_head(folder / f"{name}.gguf", part="trunk") for name in (base, *others)
        }
        for path in (studio / f"heads/{head}.gguf", folder / f"{head}.gguf"):
            put(path, content)
            taken = {name for name, target in targets.items() if find_drafts(target).best}
            assert taken == set(others)
            path.unlink()


@pytest.mark.parametrize(
    ("published", "base"),
    [
        ("gemma-4-12B-it-qat-Q4_0", "gemma-4-12B-Q4_0"),
        ("gemma-4-E2B-it-Q8_0", "gemma-4-E2B-pt-Q8_0"),
        ("Qwen3-4B-Q4_K_M", "Qwen3-4B-Base-Q4_K_M"),
        ("Qwen3-Coder-30B-A3B-Instruct-Q4_0", "Qwen3-Coder-30B-A3B-Base"),
        ("Qwen3.8-27B-UD-Q4_K_XL", "Qwen3.8-27B-Base-Q4_K_M"),
        ("LFM2.5-2.6B-Q4_K_M", "LFM2.5-2.6B-Base-Q4_K_M"),
    ],
)
def test_a_published_head_is_not_known_for_the_base_model(published: str, base: str) -> None:
    """Not even if one of its names lacks the mark."""
    name = published.rpartition("-")[0]
    assert known_heads(f"{published}.gguf", name)
    assert not known_heads(f"{base}.gguf", base)
    if "Base" in base:
        assert not known_heads(f"{base}.gguf", name.replace("-Instruct", ""))


def test_a_derived_head_is_taken_for_its_model_and_for_models_like_it(tmp_path: Path) -> None:
    """By its record: one of another family is left alone, one for these very weights is best."""
    target = write_with_head(tmp_path / "target.gguf", "llama", part="trunk")
    (tmp_path / "heads").mkdir()
    head = write_with_head(tmp_path / "heads/head.gguf", "llama", part="head")
    ours = DraftOrigin(
        fingerprints(read_header(target)).model, "the target", "train", "answers", "1.2"
    )
    other = DraftOrigin("0" * 64, "another one", "train", "answers", "1.2")
    write_copy(Copy(str(head), str(tmp_path / "my-eagle3.gguf"), metadata=other.metadata))

    found = find_drafts(target)
    assert found.best is None
    ((_, reason),) = found.unfit
    assert "derived from another target, another one" in reason
    name = read_header(target).name
    kin = DraftOrigin("0" * 64, name, "train", "answers", "1.9")
    write_copy(Copy(str(head), str(tmp_path / "kin-eagle3.gguf"), metadata=kin.metadata))
    found = find_drafts(target)
    assert found.best is not None
    assert found.best.model.name == "kin-eagle3.gguf"
    assert found.best.why.startswith(f"derived from {name}, whose weights are others, predicted")
    write_copy(Copy(str(head), str(tmp_path / "own-eagle3.gguf"), metadata=ours.metadata))
    found = find_drafts(target)
    assert found.best is not None
    assert found.best.model.name == "own-eagle3.gguf"
    assert "derived from it, predicted" in found.best.why
    assert found.best.why.endswith("2 heads fit it: `specchat tune` measures which is fastest")


def test_the_draft_that_ships_is_found_for_any_file_of_its_model(
    tiny: WriteModel, tmp_path: Path
) -> None:
    """By the record in it, wherever the target is and however it is named."""
    source = tiny("llama", num_layers=6)
    made = quantised(source, "Q8_0", tmp_path).rename(tmp_path / "other.gguf")
    draft = tmp_path / "shipped" / "draft.gguf"
    draft.parent.mkdir()
    header = read_header(source)
    origin = DraftOrigin(fingerprints(header).model, header.name, "skip", "answers", "1.5")
    smaller = tiny("llama", num_layers=5)
    write_copy(Copy(str(smaller), str(draft), metadata=origin.metadata))
    save_pair("one", source, draft)

    best = find_drafts(made).best
    assert best is not None
    assert best.model.path == draft
    tuned = tiny("llama", num_layers=6, seed=7, metadata={"general.name": f"{header.name} tuned"})
    (found,) = [each for each in find_drafts(tuned).fitting if each.model.path == draft]
    assert "whose weights are others" in found.why
    other = tiny("llama", num_layers=6, seed=8, metadata={"general.name": "another"})
    assert draft not in [each.model.path for each in find_drafts(other).fitting]
