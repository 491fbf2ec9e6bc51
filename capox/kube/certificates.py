"""The certificate under which a process serves: its own, made at its start, or one from files."""

from __future__ import annotations

import datetime
import os
import pathlib
import ssl
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["self_signed", "tls_from_files"]

CERTIFICATE_DAYS: Final = 3650
"""How long a self-signed certificate lasts; nobody verifies it, and it goes with the process."""


def self_signed(name: str) -> ssl.SSLContext:
    """A certificate of this process's own, made now and written nowhere: the kubelet's probes verify none."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # Python reads keys from files only, and a container may have no place that can be written.
    number = os.memfd_create("certificate", os.MFD_CLOEXEC)
    with os.fdopen(number, "wb") as file:
        file.write(pem)
        file.flush()
        return tls_from_files(pathlib.Path(f"/proc/self/fd/{number}"))


def tls_from_files(certificate: pathlib.Path, key: pathlib.Path | None = None) -> ssl.SSLContext:
    """TLS with a certificate and key in PEM files; without a key's own file both are in one.

    Raises:
        OSError: They cannot be read, or are none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context
