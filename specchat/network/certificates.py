"""The certificates that TLS connections trust: the system's, or those that a variable names."""

import os
import re
import ssl
from pathlib import Path

from specchat.network.proxies import NetworkMisconfigured

OPENSSL = ("SSL_CERT_FILE", "SSL_CERT_DIR")
OTHERS = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables of other programs, which count where none of OpenSSL's is set."""

HASHED = re.compile(r"[0-9a-f]{8}\.\d+")
"""The names under which OpenSSL finds certificates in a folder."""


def given() -> tuple[tuple[str, str], ...]:
    """Return the variables that count, with the paths in them; none for the system's."""
    chosen = [(name, path) for name in OPENSSL if (path := os.environ.get(name, ""))]
    others = [(name, path) for name in OTHERS if (path := os.environ.get(name, ""))]
    return tuple(chosen or others[:1])


def trusted_context() -> ssl.SSLContext:
    """Return the settings of TLS connections.

    Raises NetworkMisconfigured, which names the variable and its path, if that has no certificates.
    """
    import httpx2

    variables = given()
    if not variables:
        return httpx2.create_ssl_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which verifies, and checks the host
    for variable, path in variables:
        try:
            _load(context, path, is_folder=variable == "SSL_CERT_DIR" or Path(path).is_dir())
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            if isinstance(error, ssl.SSLError):
                why = "not a file of certificates (PEM)"
            raise NetworkMisconfigured(
                f"{variable} is {path}: {why[:1].lower()}{why[1:]}; set it to certificates that"
                " exist, or unset it"
            ) from None
    return context


def _load(context: ssl.SSLContext, path: str, *, is_folder: bool) -> None:
    """Trust the certificates of a file or a folder. Raises OSError or ValueError."""
    if not is_folder:
        context.load_verify_locations(cafile=path)
        return
    folders = [Path(part) for part in path.split(os.pathsep) if part]
    names = [file.name for folder in folders if folder.is_dir() for file in folder.iterdir()]
    if not any(folder.is_dir() for folder in folders):
        raise ValueError("no such folder")
    if not any(HASHED.fullmatch(name) for name in names):
        raise ValueError("no certificates under hashed names (run `openssl rehash` on it)")
    context.load_verify_locations(capath=path)
