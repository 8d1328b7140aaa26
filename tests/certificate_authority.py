"""An authority of certificates for tests, and a server on this machine that it certifies."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from proxy_server import NAME

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True)
class Authority:
    """The certificate of an authority, alone in a folder, and a server's with its key."""

    file: Path
    server: Path

    @property
    def folder(self) -> Path:
        """The folder, in which OpenSSL finds the certificate."""
        return self.file.parent


def write_authority(folder: Path) -> Authority:
    """Write an authority and a certificate of this machine, with the program openssl."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    new = ("req", "-newkey", "rsa:2048", "-nodes", "-subj")
    openssl(*new, "/CN=A company", "-x509", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(*new, f"/CN={NAME}", "-keyout", "key.pem", "-out", "asked.pem")
    names = f"subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost,DNS:{NAME}"
    (folder / "names").write_text(names)
    openssl("x509", "-req", "-in", "asked.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2",
            "-CAcreateserial", "-extfile", "names", "-out", "one.pem")  # fmt: skip
    both = folder / "server.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "one.pem").read_bytes())
    trusted = folder / "trusted"
    trusted.mkdir()
    shutil.copy(folder / "ca.pem", trusted)
    openssl("rehash", str(trusted))
    return Authority(trusted / "ca.pem", both)
