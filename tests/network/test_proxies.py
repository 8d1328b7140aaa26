"""Proxies on the way to the hub: used where they are named, and named where they fail."""

from __future__ import annotations

import gc
import importlib.util
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from catalogue_files import CONTENT, FILE, get
from certificate_authority import Authority
from hub_server import HubServer
from proxy_server import NAME, proxying
from specchat.cli import main
from specchat.errors import DownloadFailed
from specchat.network.proxies import find_proxy

HAS_SOCKS = importlib.util.find_spec("socksio") is not None
DEAD = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def _far_hub(hub: HubServer, no_proxies: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub with the one file, which only a proxy can reach."""
    hub.put(FILE.repository, FILE.file, CONTENT)
    hub.has_storage = False
    monkeypatch.setenv("HF_ENDPOINT", f"http://{NAME}")


def refusal() -> str:
    """Return why a download fails, in one line."""
    with pytest.raises(DownloadFailed) as raised:
        get(waits=())
    line = str(raised.value)
    assert "\n" not in line
    assert "secret" not in line
    assert len(line) < 240
    return line


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_a_proxy_is_used_without_its_scheme_too(
    hub: HubServer, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As curl and pip take it."""
    with proxying(hub.address) as proxy:
        monkeypatch.setenv(variable, proxy.address)
        assert get()[0].read_bytes() == CONTENT
    assert {each.split("/")[2] for each in proxy.asked} == {NAME}


def without_socksio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the package for SOCKS."""
    find = importlib.util.find_spec

    def hidden(name: str, *rest: Any) -> ModuleSpec | None:
        return None if name == "socksio" else find(name, *rest)

    monkeypatch.setattr("importlib.util.find_spec", hidden)


@pytest.mark.parametrize("variable", ["ALL_PROXY", "http_proxy"])
def test_socks_without_its_package_says_what_to_install(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable, its address without the password, the command, and the way without."""
    without_socksio(monkeypatch)
    monkeypatch.setenv(variable, f"socks5://me:secret@{DEAD}")
    line = refusal()

    assert line.startswith(f"{variable} is socks5://{DEAD}, ")
    assert "pip install" in line
    assert "socksio" in line
    assert f"set {variable} to http://HOST:PORT" in line


@pytest.mark.skipif(not HAS_SOCKS, reason="needs the package socksio")
@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "socks"])
@pytest.mark.parametrize("login", ["", "me:secret"])
def test_socks_works_with_its_package(
    hub: HubServer, scheme: str, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy looks up the name, and wants the login."""
    with proxying(hub.address, "socks5", login=login) as proxy:
        monkeypatch.setenv("ALL_PROXY", f"{scheme}://{login and login + '@'}{proxy.address}")
        assert get()[0].read_bytes() == CONTENT
        assert set(proxy.asked) == {f"{NAME}:80"}


@pytest.mark.skipif(not HAS_SOCKS, reason="needs the package socksio")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # httpcore2 leaves it to Python
def test_a_wrong_login_at_socks_is_named(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its variable; and where there is none at all."""
    with proxying(hub.address, "socks5", login="me:right") as proxy:
        monkeypatch.setenv("ALL_PROXY", f"socks5://me:secret@{proxy.address}")
        assert "refused the login in ALL_PROXY" in refusal()
        monkeypatch.setenv("ALL_PROXY", f"socks5://{proxy.address}")
        assert f"ALL_PROXY=socks5://NAME:PASSWORD@{proxy.address}" in refusal()
    gc.collect()


@pytest.mark.parametrize(
    "address",
    ["ftp://me:secret@127.0.0.1:1", "http://me:secret@127.0.0.1:99999", "http://", "http://[::1",
     "socks4://127.0.0.1:1", "http://a b:1", "127.0.0.1:x"],
)  # fmt: skip
def test_what_is_not_a_proxy_is_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, with the variable, its address and the right form."""
    monkeypatch.setenv("HTTP_PROXY", address)
    line = refusal()

    assert line.startswith(f"HTTP_PROXY is {address.replace('me:secret@', '')}, which")
    assert "http://HOST:PORT" in line


def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not the hub that cannot be reached."""
    monkeypatch.setenv("HTTP_PROXY", f"http://me:secret@{DEAD}")
    line = refusal()

    assert line.startswith(f"the proxy http://{DEAD} (HTTP_PROXY) cannot be reached (")
    assert "unset HTTP_PROXY" in line


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_a_login_is_named(
    hub: HubServer, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the form to write; a wrong login is another line. HTTPS asks in another way."""
    monkeypatch.setenv("HF_ENDPOINT", f"{scheme}://{NAME}")
    variable = f"{scheme.upper()}_PROXY"
    with proxying(hub.address, login="me:right") as proxy:
        monkeypatch.setenv(variable, f"http://{proxy.address}")
        line = refusal()
        assert line.startswith(f"the proxy http://{proxy.address} ({variable}) requires a login")
        assert f"{variable}=http://NAME:PASSWORD@{proxy.address}" in line
        monkeypatch.setenv(variable, f"http://me:secret@{proxy.address}")
        assert f"refused the login in {variable}" in refusal()
        if scheme == "http":
            monkeypatch.setenv(variable, f"http://me:right@{proxy.address}")
            assert get()[0].read_bytes() == CONTENT


def test_a_proxy_that_refuses_is_named(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its reason, and the variables to check."""
    monkeypatch.setenv("HF_ENDPOINT", f"https://{NAME}")
    with proxying(hub.address, refusal=b"403 Forbidden by policy") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
        line = refusal()
    assert line.startswith(f"the proxy http://{proxy.address} (HTTPS_PROXY) refused (403 Forbidden")
    assert "NO_PROXY" in line


def test_tls_goes_through_a_proxy(
    tls_hub: HubServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the certificates that a variable names."""
    tls_hub.put(FILE.repository, FILE.file, CONTENT)
    tls_hub.has_storage = False
    monkeypatch.setenv("HF_ENDPOINT", f"https://{NAME}")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    with proxying(tls_hub.address) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
        assert get()[0].read_bytes() == CONTENT
    assert set(proxy.asked) == {f"CONNECT {NAME}:443"}


def test_no_proxy_leads_to_this_machine(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that cannot be used."""
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    monkeypatch.setenv("ALL_PROXY", "ftp://nothing")
    assert get()[0].read_bytes() == CONTENT


def test_commands_that_need_no_network_ignore_a_proxy(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is here is listed and used without a word."""
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    get()
    without_socksio(monkeypatch)
    monkeypatch.setenv("HF_ENDPOINT", f"http://{NAME}")
    monkeypatch.setenv("ALL_PROXY", f"socks5://{DEAD}")
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    assert main(["list"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["pull", str(FILE)]) == 0
    assert "already installed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entry", "is_direct"),
    [
        ("*", True),
        (NAME, True),
        ("example", True),
        (".example", True),
        ("*.example", True),
        (f"{NAME}:443", True),
        (f"{NAME}:80", False),
        ("other.example", False),
        ("b.example", False),
        ("", False),
        ("one.example, hub.example", True),
    ],
)
def test_no_proxy_excepts(entry: str, is_direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts, domains and ports, in the forms that other programs know."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", entry)
    assert (find_proxy(f"https://{NAME}/x") is None) == is_direct


@pytest.mark.parametrize(
    ("entry", "host", "is_direct"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.1.2.3:8080", "10.1.2.3:8080", True),
        ("fd00::/8", "[fd00::5]", True),
        ("[fd00::5]:80", "[fd00::5]:80", True),
        ("fd00::5", "[fd00::6]", False),
    ],
)
def test_no_proxy_excepts_networks(
    entry: str, host: str, is_direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By number, also of IPv6."""
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", entry)
    assert (find_proxy(f"http://{host}/x") is None) == is_direct


@pytest.mark.parametrize(
    ("prefix", "has_pip", "command"),
    [
        ("/home/me/.local/share/pipx/venvs/specchat", False, "pipx inject specchat socksio"),
        ("/home/me/.local/share/uv/tools/specchat", False, "uv tool install --with socksio"),
        ("/home/me/clone/.venv", False, "uv pip install --python"),
        ("/home/me/clone/.venv", True, "-m pip install socksio"),
    ],
)
def test_the_command_fits_how_specchat_was_installed(
    prefix: str, has_pip: bool, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By pipx, uv, or into an environment with or without pip."""
    without_socksio(monkeypatch)
    find = importlib.util.find_spec

    def found(name: str, *rest: Any) -> Any:
        return has_pip or None if name == "pip" else find(name, *rest)

    monkeypatch.setattr("importlib.util.find_spec", found)
    monkeypatch.setattr("sys.prefix", prefix)
    monkeypatch.setenv("ALL_PROXY", f"socks5://{DEAD}")
    assert command in refusal()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.9.9.9", "[::1]"])
@pytest.mark.parametrize("variable", ["http_proxy", "ALL_PROXY"])
def test_this_machine_is_reached_without_a_proxy(
    host: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though NO_PROXY does not name it."""
    monkeypatch.setenv(variable, f"http://{DEAD}")
    assert find_proxy(f"http://{host}:8080/x") is None
    assert find_proxy(f"http://{NAME}/x") is not None
