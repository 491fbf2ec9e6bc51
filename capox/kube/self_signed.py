"""`python -m capox.kube.self_signed NAME`: prints a certificate of its own and its key, as PEM.

A program of its own, because what makes certificates is worth nine megabytes of memory, and a process needs it once.
"""

from __future__ import annotations

import datetime
import sys
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["certificate_and_key"]

CERTIFICATE_DAYS: Final = 3650
"""How long it lasts; nobody verifies it, and it goes with the process that serves under it."""

NAME_MAX: Final = 64
"""How long a common name may be."""


def certificate_and_key(name: str, now: datetime.datetime) -> bytes:
    """Make a key and its certificate.

    Args:
        name: The common name; what is too long is cut.
        now: It is good from an hour before.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:NAME_MAX])])
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
    sys.stdout.buffer.write(certificate_and_key(sys.argv[1], datetime.datetime.now(datetime.UTC)))
