"""Certificates: an authority of one's own, and variables that name none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from catalogue_files import CONTENT, FILE, get
from certificate_authority import VARIABLES, Authority
from hub_server import HubServer
from specchat.errors import DownloadFailed


def refusal() -> str:
    """Return why a download fails, in one line, without waiting between tries."""
    with pytest.raises(DownloadFailed) as raised:
        get()
    line = str(raised.value)
    assert "\n" not in line
    assert len(line) < 240
    return line


@pytest.fixture(autouse=True)
def _one_file(tls_hub: HubServer) -> None:
    """A hub with TLS that has the one file."""
    tls_hub.put(FILE.repository, FILE.file, CONTENT)


@pytest.mark.parametrize("variable", VARIABLES)
def test_an_own_authority_is_trusted_once_it_is_named(
    tls_hub: HubServer, authority: Authority, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before that, one line says how; the file comes from the hub and its storage."""
    line = refusal()
    assert line.startswith(f"the certificate of {tls_hub.address} is not trusted (unable to get")
    assert "set SSL_CERT_FILE" in line
    assert tls_hub.seen == []
    place = authority.folder if variable == "SSL_CERT_DIR" else authority.file
    monkeypatch.setenv(variable, str(place))

    assert get()[0].read_bytes() == CONTENT
    assert {seen.method for seen in tls_hub.seen} == {"HEAD", "GET"}


def test_a_bundle_may_be_a_folder(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """As requests takes it; and several folders are searched, as OpenSSL does it."""
    place = authority.folder
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(place))
    assert get()[0].read_bytes() == CONTENT
    get()[0].unlink()
    monkeypatch.setenv("SSL_CERT_DIR", f"/nowhere{os.pathsep}{place}")
    assert get()[0].read_bytes() == CONTENT


def test_what_openssl_is_given_comes_first(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle for other programs, however wrong, does not count then."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere.pem")
    assert get()[0].read_bytes() == CONTENT


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [("missing", "no such"), ("empty", "not a file"), ("text", "not a file"), ("folder", "hashed")],
)
def test_a_variable_that_names_no_certificates_is_named(
    variable: str, kind: str, reason: str, tls_hub: HubServer, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """With its path; nothing is asked, and nothing is tried again."""
    place = tmp_path / kind
    if kind == "folder":
        place.mkdir()
    elif kind != "missing":
        place.write_text("" if kind == "empty" else "these are not certificates\n")
    if variable == "SSL_CERT_DIR" and kind != "folder":
        reason = "no such folder"
    if variable == "SSL_CERT_FILE" and kind == "folder":
        reason = "hashed"
    monkeypatch.setenv(variable, str(place))
    line = refusal()

    assert line.startswith(f"{variable} is {place}: ")
    assert reason in line
    assert "unset it" in line
    assert tls_hub.seen == []


def test_no_certificates_are_needed_without_tls(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong variable is no reason to refuse then."""
    hub.put(FILE.repository, FILE.file, CONTENT)
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    assert get()[0].read_bytes() == CONTENT


def test_a_hub_without_tls_is_named(
    hub: HubServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the address to set."""
    monkeypatch.setenv("HF_ENDPOINT", hub.address.replace("http:", "https:"))
    assert refusal().endswith(f"does not speak TLS: set HF_ENDPOINT to {hub.address}")
