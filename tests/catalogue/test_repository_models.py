"""The models in a repository, and which of them to take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specchat.catalogue.repository_models import (
    best_of,
    full_name,
    models_of,
    named,
    require_best,
    rows,
    why_preferred,
)
from specchat.errors import ModelNotFound
from specchat.hub.listing import ListedFile
from specchat.hub.names import HubName, parse_name
from specchat.planning.device import Device, Machine
from tables import table

GB = 10**9
SIZES = {
    "M-Q2_K.gguf": 3.0, "M-IQ4_XS.gguf": 4.3, "M-Q4_0.gguf": 4.6, "M-Q4_K_M.gguf": 4.9,
    "M-Q4_K_S.gguf": 4.7, "M-Q5_K_M.gguf": 5.7, "M-Q8_0.gguf": 8.5, "M-f16.gguf": 16.0,
}  # fmt: skip
REPO = HubName("org/M-GGUF")


def files(sizes: dict[str, float]) -> list[ListedFile]:
    """Return a repository's list."""
    return [ListedFile(path, int(size * GB)) for path, size in sizes.items()]


@pytest.fixture(autouse=True)
def _any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left to other programs is a share of what is free, not of this machine's memory."""
    monkeypatch.setattr("specchat.planning.forecast.total_bytes", lambda: 0)


def machine(free: float, gpu: float = 0.0) -> Machine:
    """Return a machine with gigabytes of free memory, and of free memory on a GPU."""
    device = Device("CUDA0", "GPU", "gpu", int(gpu * GB), int(gpu * GB))
    return Machine(int(free * GB), (device,) if gpu else ())


@table(
    ("free", "gpu", "expected"),
    [
        (16, 0, "Q4_0"),  # a CPU takes as long as it reads
        (100, 0, "Q4_0"),
        (7.5, 0, "Q4_0"),  # of what fits, 4 bits before others
        (5.5, 0, "Q2_K"),
        (2, 0, None),
        (32, 80, "Q8_0"),  # 16 bits gain nothing
        (32, 9, "Q5_K_M"),
        (32, 2, "Q4_K_M"),  # nothing fits the GPU
    ],
)
def test_the_best_depends_on_the_machine(free: float, gpu: float, expected: str | None) -> None:
    """On a GPU the largest that fits it, up to 8 bits; on a CPU 4 bits."""
    best = best_of(models_of(REPO, files(SIZES)), machine(free, gpu))
    assert (best and best.quantisation) == expected


def test_of_files_of_one_size_the_one_that_is_cheapest_to_verify_is_taken() -> None:
    """Where a CPU repacks it, and with the reason; otherwise the usual one, without a word."""
    models = models_of(REPO, files({**SIZES, "M-IQ4_NL.gguf": 4.6}))
    here, other = machine(16), replace(machine(16), repacks_weights=False)
    best, usual = best_of(models, here), best_of(models, other)
    assert best
    assert usual
    assert (best.quantisation, usual.quantisation) == ("Q4_0", "Q4_K_M")
    assert why_preferred(best, models, here) == (
        "Q4_0 rather than Q4_K_M: checking 2 to 4 tokens usually costs 1.9 times checking one"
        " here, not 2.2"
    )
    assert why_preferred(usual, models, other) == ""


def test_a_much_smaller_file_is_not_preferred() -> None:
    """It would be worse, too."""
    models = models_of(REPO, files({"M-Q4_0.gguf": 4.6, "M-Q4_K_M.gguf": 5.9}))
    best = best_of(models, machine(16))
    assert best
    assert best.quantisation == "Q4_K_M"


def test_without_sizes_the_usual_one_is_taken() -> None:
    """A mirror may not know them."""
    models = models_of(REPO, [ListedFile(path) for path in SIZES])
    best = best_of(models, machine(16))
    assert best is not None
    assert best.quantisation == "Q4_K_M"
    assert best.num_bytes is None


@pytest.mark.parametrize("gpu", [0, 80])
def test_what_a_name_does_not_say_or_is_obsolete_comes_last(gpu: float) -> None:
    """A file without a quantization may have any; llama.cpp no longer loads some."""
    listed = files({"model.gguf": 30, "M-Q4_0_8_8.gguf": 4.6, "M-Q5_K_M.gguf": 5})
    best = best_of(models_of(REPO, listed), machine(100, gpu))
    assert best is not None
    assert best.quantisation == "Q5_K_M"


def test_models_with_the_same_quantization_are_named_by_their_files() -> None:
    """In the list, and in what is advised."""
    models = models_of(REPO, files({"A-Q4_0.gguf": 1, "b & c/B-Q4_0.gguf": 2, "A-Q8_0.gguf": 3}))
    assert [row.split("  ")[0] for row in rows(models, machine(9))] == [
        "A-Q4_0.gguf",
        "b & c/B-Q4_0.gguf",
        "Q8_0",
    ]
    names = [full_name(each, models) for each in models]
    assert names == ["org/M-GGUF/A-Q4_0.gguf", "org/M-GGUF/b & c/B-Q4_0.gguf", "org/M-GGUF:Q8_0"]
    with pytest.raises(ModelNotFound, match=r"name one to pull it anyway, org/M-GGUF/A-Q4_0\.gguf"):
        require_best(REPO, models, machine(0.1))


def test_a_quantization_may_be_a_folders_name() -> None:
    """As for models in parts."""
    listed = files({"Q4_K_M/m-00001-of-00002.gguf": 1, "Q4_K_M/m-00002-of-00002.gguf": 1})
    (model,) = models_of(REPO, listed)
    assert model.quantisation == "Q4_K_M"
    assert named(HubName("org/M-GGUF", quantisation="q4_k_m"), [model]) == model


def test_advice_keeps_the_revision() -> None:
    """Another revision may have other files."""
    (model,) = models_of(HubName("org/M-GGUF", revision="v2"), files({"M-Q4_0.gguf": 1}))
    name = parse_name(full_name(model, [model]))
    assert (name.file, name.revision) == ("M-Q4_0.gguf", "v2")


def test_what_cannot_be_used_alone_is_left_out() -> None:
    """Projectors, adapters, heads, second parts, and models that lack a part."""
    listed = files(
        {
            "mmproj-M-f16.gguf": 1,
            "M-lora.gguf": 1,
            "M-imatrix.gguf": 1,
            "mtp-M.gguf": 1,
            "big/B-00001-of-00002.gguf": 2,
            "big/B-00002-of-00002.gguf": 3,
            "half/H-00001-of-00002.gguf": 2,
            "Explorer-Q4_0.gguf": 1,
        }
    )
    models = models_of(REPO, listed)
    assert {each.reference.file: each.num_bytes for each in models} == {
        "big/B-00001-of-00002.gguf": 5 * GB,
        "Explorer-Q4_0.gguf": GB,
    }


def test_a_folder_of_a_page_limits_the_choice() -> None:
    """As /tree/main/Q8 does; a folder whose name begins the same is another."""
    listed = files({"Q8/M-Q8_0.gguf": 1, "Q8x/M-Q4_0.gguf": 1, "M-Q5_0.gguf": 1})
    name = parse_name("https://huggingface.co/org/M-GGUF/tree/main/Q8")
    assert [each.quantisation for each in models_of(name, listed)] == ["Q8_0"]


@table(
    ("wanted", "file"),
    [
        ("Q4_K_M", "M-Q4_K_M.gguf"),
        ("q4_k_m", "M-Q4_K_M.gguf"),
        ("F16", "M-f16.gguf"),
        ("M-Q8_0", "M-Q8_0.gguf"),
        ("M-Q8_0.gguf", "M-Q8_0.gguf"),
        ("UD-Q3_K_XL", "M-UD-Q3_K_XL.gguf"),
        ("Q3_K_XL", "M-UD-Q3_K_XL.gguf"),
    ],
)
def test_a_quantization_names_a_model(wanted: str, file: str) -> None:
    """In any case, with or without what others put before it, or as the file is called."""
    models = models_of(REPO, files({**SIZES, "M-UD-Q3_K_XL.gguf": 4}))
    assert named(HubName("org/M-GGUF", quantisation=wanted), models).reference.file == file


@table(
    ("wanted", "words"),
    [
        ("Q6_K", "org/M-GGUF:Q6_K is not in the repository, which has Q2_K, IQ4_XS, Q4_0"),
        ("Q4", "it has M-Q4_0.gguf, M-Q4_K_M.gguf, M-Q4_K_S.gguf"),
        ("M", "has several: name one with its file, org/M-GGUF/FILE; it has M-Q2_K.gguf"),
    ],
)
def test_a_quantization_that_names_none_or_several_lists_them(wanted: str, words: str) -> None:
    """There is no guess."""
    with pytest.raises(ModelNotFound) as raised:
        named(HubName("org/M-GGUF", quantisation=wanted), models_of(REPO, files(SIZES)))
    assert words in str(raised.value)


def test_a_row_says_size_and_fit() -> None:
    """The smallest comes first."""
    shown = rows(models_of(REPO, files(SIZES)), machine(10))
    assert shown[0] == "Q2_K     3.00 GB  fits in memory"
    assert shown[-1] == "F16      16.0 GB  too large"
