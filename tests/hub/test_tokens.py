"""Tokens that the hub refuses: a public file needs none, and the user learns which it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from catalogue_files import AT_ONCE, CONTENT, FILE, get
from hub_server import Fault, HubServer
from specchat.errors import DownloadFailed
from specchat.hub.download import download
from specchat.hub.references import Reference

EXPIRED = {"X-Error-Message": 'User Access Token "laptop" is expired'}


@pytest.fixture(autouse=True)
def _one_file(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub with the one file, which knows one token; no request remembers another test's."""
    hub.put(FILE.repository, FILE.file, CONTENT)
    hub.tokens = {"hf_right"}
    monkeypatch.setattr("specchat.hub.hub_request._refused_tokens", set())


def notices_of(*references: Reference) -> list[str]:
    """Download, and return the notices."""
    notices: list[str] = []
    paths = download(references, None, None, notices.append, waits=AT_ONCE)
    assert all(path.read_bytes() == CONTENT for path in paths)
    return notices


@pytest.mark.parametrize("refusal", [{}, EXPIRED], ids=["401 alone", "expired"])
def test_a_public_file_comes_without_a_refused_token(
    hub: HubServer, refusal: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried once for all files, and one notice names its variable, never the token."""
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    hub.refusal = refusal
    hub.put(FILE.repository, "other.gguf", CONTENT, hub.branches[FILE.repository])
    (notice,) = notices_of(FILE)
    assert notices_of(Reference(FILE.repository, "other.gguf")) == [notice]

    assert f"{hub.address} refused the token in HF_TOKEN" in notice
    assert "hf auth login" in notice
    assert "hf_wrong" not in notice
    assert [seen.authorization for seen in hub.seen].count("Bearer hf_wrong") == 1


def test_a_token_in_a_file_is_named_by_its_path(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is where `hf auth login` keeps it."""
    place = tmp_path / "token"
    place.write_text("hf_old")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(place))
    (notice,) = notices_of(FILE)

    assert f"the token in {place}" in notice
    assert "hf_old" not in notice


def test_a_right_token_is_sent_with_every_request(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And without a notice."""
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert notices_of(FILE) == []
    of_hub = {seen.authorization for seen in hub.seen if "signed" not in seen.path}
    assert of_hub == {"Bearer hf_right"}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("GatedRepo", r"is gated: accept its terms at .*/org/model, then use a new token"),
        ("RepoNotFound", r"there is no org/model .* private one needs a new token"),
    ],
)
def test_a_refused_token_is_named_where_a_token_is_needed(
    hub: HubServer, code: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its place; nothing is fetched."""
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    hub.has_api = False
    hub.faults = [Fault("HEAD", status=401, headers={"X-Error-Code": code}, times=9)]
    with pytest.raises(DownloadFailed, match=message) as raised:
        get()

    line = str(raised.value)
    assert "(the one in HF_TOKEN is wrong or expired)" in line
    assert "hf_wrong" not in line
    assert "\n" not in line


def test_a_gated_repository_names_the_page_and_how_to_log_in(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a token that is right, its account has to accept the terms."""
    hub.faults = [Fault("HEAD", status=401, headers={"X-Error-Code": "GatedRepo"}, times=9)]
    page = f"accept its terms at {hub.address}/org/model, then use"
    with pytest.raises(DownloadFailed, match=f"{page} `hf auth login` or HF_TOKEN"):
        get()
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    hub.faults = [Fault("HEAD", status=403, headers={"X-Error-Code": "GatedRepo"}, times=9)]
    with pytest.raises(DownloadFailed, match=f"{page} the account of your token"):
        get()


def test_a_refusal_by_the_storage_does_not_count_against_the_token(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub took it and sent on; its signed link may have expired."""
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    hub.faults = [Fault("storage", status=401, times=9)]
    with pytest.raises(DownloadFailed, match="the hub's storage of"):
        get()
    hub.faults = []
    assert notices_of(FILE) == []
    of_hub = {seen.authorization for seen in hub.seen if "signed" not in seen.path}
    assert of_hub == {"Bearer hf_right"}


def test_a_token_does_not_go_to_the_storage(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the storage alone knows the size, as behind some mirrors."""
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    hub.left_out = {"x-repo-commit", "x-linked-size", "x-linked-etag"}
    assert notices_of(replace(FILE, revision=hub.branches[FILE.repository])) == []
    of_storage = [seen for seen in hub.seen if "signed" in seen.path]
    assert {seen.method for seen in of_storage} == {"HEAD", "GET"}
    assert {seen.authorization for seen in of_storage} == {None}


def test_a_token_with_odd_characters_is_not_sent(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was copied wrongly; the variable is named."""
    monkeypatch.setenv("HF_TOKEN", "hf_wrong\u200b")
    with pytest.raises(DownloadFailed, match="the token in HF_TOKEN has characters") as raised:
        get()
    assert "hf_wrong" not in str(raised.value)
    assert hub.seen == []
