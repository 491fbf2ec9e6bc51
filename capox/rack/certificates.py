"""A certificate that signs itself, for HTTPS on this machine."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID = datetime.timedelta(days=30)
# Clocks of machines that share a test differ.
_SKEW = datetime.timedelta(hours=1)


def write_self_signed(certificate: Path, key: Path, *hosts: str) -> None:
    """Write a certificate for `localhost`, the loopback addresses and further hosts, and its private key, as PEM.

    Args:
        certificate: where the certificate goes; clients give it as their CA.
        key: where the private key goes; its owner alone can read it.
        *hosts: IP addresses, or `localhost`.
    """
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "capox simulated rack")])
    addresses = {"127.0.0.1", "::1", *(host for host in hosts if host != "localhost")}
    alternatives = [
        x509.DNSName("localhost"),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in sorted(addresses)),
    ]
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(private.public_key()), critical=False)
        .add_extension(_KEY_USAGE, critical=True)
        .sign(private, hashes.SHA256())
    )
    key.touch(mode=0o600)
    key.chmod(0o600)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


_KEY_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
