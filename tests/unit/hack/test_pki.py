"""Certificates verify, say who they are for, and keep their keys to themselves."""

from __future__ import annotations

import base64
import json
import ssl
import stat
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from hack.controlplane import pki

if TYPE_CHECKING:
    from pathlib import Path


def parsed(pair: pki.KeyPair) -> x509.Certificate:
    """The certificate of a pair."""
    return x509.load_pem_x509_certificate(pair.certificate)


def authority_of(pair: pki.CertificateAuthority) -> x509.Certificate:
    """The certificate of an authority."""
    return parsed(pair.key_pair)


@pytest.mark.parametrize("rsa_key", [False, True], ids=["elliptic", "rsa"])
def test_a_serving_certificate_is_signed_for_loopback(rsa_key: bool) -> None:
    """It verifies against its authority, for each name and address by which a server here is called."""
    authority = pki.CertificateAuthority("test", rsa_key=rsa_key)
    certificate = parsed(authority.serving("server"))

    certificate.verify_directly_issued_by(authority_of(authority))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == set(pki.SERVING_NAMES)
    assert {str(address) for address in names.get_values_for_type(x509.IPAddress)} == set(pki.SERVING_ADDRESSES)
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_client_certificate_carries_user_and_groups() -> None:
    """Kubernetes reads the user from the common name and the groups from the organizations."""
    certificate = parsed(pki.CertificateAuthority("test").client("someone", ["one", "two"]))

    subject = certificate.subject
    assert [name.value for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["someone"]
    assert [name.value for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["one", "two"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_another_authority_does_not_vouch() -> None:
    """A client of one control plane is nobody to another."""
    mine, other = pki.CertificateAuthority("same name"), pki.CertificateAuthority("same name")
    client = parsed(mine.client("someone"))

    verifier = PolicyBuilder().store(Store([authority_of(other)])).build_client_verifier()
    with pytest.raises(VerificationError):
        verifier.verify(client, [])


def test_service_account_keys_belong_together() -> None:
    """The public key is that of the private key."""
    keys = pki.ServiceAccountKeys.generate()

    private = load_pem_private_key(keys.private, password=None)
    assert private.public_key() == load_pem_public_key(keys.public)


def test_private_files_are_private(tmp_path: Path) -> None:
    """Every key and kubeconfig has mode 0600, and TLS can be served with what was written."""
    made = pki.ControlPlanePKI(tmp_path / "pki")
    made.write_kubeconfigs("https://127.0.0.1:1")

    secret = [path for path in made.directory.rglob("*") if path.suffix in {".key", ".kubeconfig"}]
    assert len(secret) == 10
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
    assert stat.S_IMODE(made.directory.stat().st_mode) == 0o700
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.directory / "webhook" / "tls.crt", made.directory / "webhook" / "tls.key")


def test_secrets_are_not_shown() -> None:
    """The text of a pair of keys, as a failed assertion would print it, has no key in it."""
    pair = pki.CertificateAuthority("test").key_pair
    accounts = pki.ServiceAccountKeys(public=b"public", private=b"private")

    assert "PRIVATE" not in repr(pair)
    assert "private=..." in repr(accounts)


def test_a_kubeconfig_has_everything_inline() -> None:
    """Authority and client certificate are in the file, so it can be handed around as one."""
    pair = pki.KeyPair(certificate=b"certificate", key=b"key")

    content = json.loads(pki.kubeconfig("https://127.0.0.1:1", b"authority", user=pair, namespace="somewhere"))

    assert content["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": base64.b64encode(b"authority").decode(),
    }
    assert content["users"][0]["user"] == {
        "client-certificate-data": base64.b64encode(b"certificate").decode(),
        "client-key-data": base64.b64encode(b"key").decode(),
    }
    assert content["contexts"][0]["context"]["namespace"] == "somewhere"


def test_a_kubeconfig_can_carry_a_token() -> None:
    """A ServiceAccount logs in with its token and nothing else."""
    content = json.loads(pki.kubeconfig("https://127.0.0.1:1", b"authority", token="abc"))

    assert content["users"][0]["user"] == {"token": "abc"}
    assert "namespace" not in content["contexts"][0]["context"]
