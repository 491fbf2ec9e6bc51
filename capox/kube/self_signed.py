"""`python -m capox.kube.self_signed NAME` writes a new certificate and its key to standard output, as PEM.

A program of its own, so that what makes certificates is loaded for a moment and not for the life of the process that
serves under one: it takes 10 MB there.
"""

from __future__ import annotations

import datetime
import sys
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["new_certificate"]

CERTIFICATE_DAYS: Final = 3650
"""How long a self-signed certificate lasts; nobody verifies it, and it goes with the process."""

_NAME_CHARACTERS_MAX: Final = 64


def new_certificate(name: str) -> bytes:
    """Make a certificate that has signed itself, and its key.

    Args:
        name: Its common name, cut to what such a name may have.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:_NAME_CHARACTERS_MAX])])
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
    return certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(new_certificate(sys.argv[1]))
