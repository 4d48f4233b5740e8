# SPDX-License-Identifier: Apache-2.0
"""An authority of a test's own and what it signs, made by the openssl command line. As make_certificates of
tests/support/redis_server.cc."""
import subprocess
from pathlib import Path

from .fixtures import need

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=30)


class Authority:
    """Its certificate is `ca_file`. Everything lies in `directory`, which the caller keeps."""

    def __init__(self, directory: Path):
        need("openssl")
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.ca_file = directory, directory / "ca.pem"
        openssl("req", "-x509", "-days", 2, "-subj", "/CN=test-ca", *NEW_KEY, "-keyout", directory / "ca.key", "-out", self.ca_file)

    def sign(self, label, name):
        """(certificate, key) of a server with this subject alternative name: "IP:10.0.0.1", "DNS:redis.example.com"."""
        certificate, key = self.directory / f"{label}.pem", self.directory / f"{label}.key"
        request, extension = self.directory / f"{label}.csr", self.directory / f"{label}.ext"
        extension.write_text(f"subjectAltName={name}\n")
        openssl("req", "-new", "-subj", f"/CN={label}", *NEW_KEY, "-keyout", key, "-out", request)
        openssl("x509", "-req", "-days", 2, "-in", request, "-CA", self.ca_file, "-CAkey", self.directory / "ca.key",
                "-CAcreateserial", "-extfile", extension, "-out", certificate)
        return certificate, key
