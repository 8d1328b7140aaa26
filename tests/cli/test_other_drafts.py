"""What else may draft for a pair's target: what is installed, then what the catalogue has."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from conftest import WriteModel
from local_folders import put_in_hub
from scripts.support.tiny_gguf import write_with_head
from specchat.catalogue.catalogue_file import own_catalogue_path
from specchat.cli.offers import find_other_drafts
from specchat.engine.api import Loading
from specchat.tui.setup import PairChoice

OWN = """
[pair.mine]
description = "Of two models"
target = { repository = "org/big", file = "big.gguf" }
draft = { repository = "org/small", file = "small.gguf" }
"""

HEAD = """
[head.tall]
model = "Tall-8B"
kind = "mtp"
file = { repository = "org/heads", file = "mtp-Tall-8B-Q8_0.gguf", bytes = 1680271648 }
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with caches and settings of the test's own."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


@pytest.fixture
def big(tiny: WriteModel) -> Path:
    """A model that a default one may draft for."""
    return tiny("llama", width=128, feed_forward=512, num_layers=8)


def choice(target: Path, draft: Path | None = None) -> PairChoice:
    """Return a pair that was chosen on the command line."""
    options = {"drafter": "suffix", "temperature": 0.5}
    return PairChoice("mine", "", Loading(target, draft), options)


def test_an_installed_draft_model_is_offered_unless_it_is_in_use(
    big: Path, tiny: WriteModel, home: Path
) -> None:
    """It comes with its reason; the sampling stays, and it may draft."""
    target, small = home / "big.gguf", home / "small.gguf"
    shutil.copy(big, target)
    shutil.copy(tiny("llama"), small)

    (offer,) = find_other_drafts(choice(target))
    assert offer.description.startswith("draft with small.gguf (beside it: same vocabulary")
    assert offer.choose
    other = offer.choose()
    assert other.name != "mine"
    assert (other.loading.target, other.loading.draft) == (target, small)
    assert other.options == {"drafter": "auto", "temperature": 0.5}
    assert find_other_drafts(choice(target, small)) == []


def test_a_draft_model_of_the_catalogue_is_offered_to_download(big: Path, home: Path) -> None:
    """Where the pair's target is the one that is loaded, and its draft model is missing."""
    own_catalogue_path().parent.mkdir(parents=True)
    own_catalogue_path().write_text(OWN, "utf-8")
    target = put_in_hub(home / "HF_HUB_CACHE", "org/big", "big.gguf", big.read_bytes())

    (offer,) = find_other_drafts(choice(target))
    assert offer.choose is None
    assert "download small.gguf" in offer.description
    assert [each.name for each in offer.references] == ["big.gguf", "small.gguf"]
    assert find_other_drafts(choice(big)) == []


def test_the_head_that_a_target_lacks_is_offered_to_download(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the catalogue, for any file of its model; once it is here, under the same name."""
    own_catalogue_path().parent.mkdir(parents=True)
    own_catalogue_path().write_text(HEAD, "utf-8")
    target = write_with_head(home / "Tall-8B-Q4_0.gguf", part="trunk")
    (missing,) = find_other_drafts(choice(target))
    assert missing.choose is None
    assert missing.description == "download its prediction head, an MTP head (1.68 GB)"
    assert [str(each) for each in missing.references] == ["org/heads/mtp-Tall-8B-Q8_0.gguf"]
    content = write_with_head(home / "part.gguf", part="head").read_bytes()
    put_in_hub(home / "HF_HUB_CACHE", "other/heads", "mtp-Tall.gguf", content)
    assert missing in find_other_drafts(choice(target))  # a head of its kin does not hide it
    (home / "mtp.gguf").write_bytes(content)  # beside it, a head needs no other name
    assert missing not in find_other_drafts(choice(target))
    (home / "mtp.gguf").unlink()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert missing not in find_other_drafts(choice(target))

    content = write_with_head(home / "part.gguf", part="head").read_bytes()
    (home / "part.gguf").unlink()
    put_in_hub(home / "HF_HUB_CACHE", "other/heads", "mtp-Tall-8B-Q8_0.gguf", content)
    (offer,) = find_other_drafts(choice(target))
    assert offer.choose
    assert offer.name == missing.name
