"""Keys, certificates and kubeconfigs of one control plane.

Everything is made anew for each control plane and is worth nothing outside the loopback interface. Private keys are
files of mode 0600 in a directory of mode 0700; none is ever printed.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_CLOCK_SKEW: Final = timedelta(hours=1)
_AUTHORITY_LIFETIME: Final = timedelta(days=3650)
_CERTIFICATE_LIFETIME: Final = timedelta(days=365)

LOOPBACK: Final = "127.0.0.1"

SERVING_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
SERVING_ADDRESSES: Final = (LOOPBACK, "::1", "10.0.0.1")
"""Loopback, and the first address of the Service range: clients inside a cluster call the apiserver by it."""


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key, in PEM.

    Attributes:
        certificate: one certificate.
        key: PKCS #8, unencrypted.
    """

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(certificate=..., key=...)"

    def write(self, directory: Path, name: str) -> None:
        """Write `<name>.crt` and `<name>.key` (mode 0600) into a directory, which is made when it is missing."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / f"{name}.crt").write_bytes(self.certificate)
        write_private(directory / f"{name}.key", self.key)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from the first byte on."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _private_key_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


class CertificateAuthority:
    """A certificate authority that signs for loopback.

    Args:
        common_name: name of the authority.
        rsa_key: use an RSA key, as kubeadm does, instead of an elliptic one.
    """

    def __init__(self, common_name: str, *, rsa_key: bool = False) -> None:
        self._key: PrivateKey = new_rsa_key() if rsa_key else ec.generate_private_key(ec.SECP256R1())
        self._subject = _name(common_name, ())
        now = datetime.now(UTC)
        public = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(self._subject)
            .issuer_name(self._subject)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + _AUTHORITY_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(public, critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def key_pair(self) -> KeyPair:
        """The authority's own certificate and key."""
        return KeyPair(self._certificate.public_bytes(serialization.Encoding.PEM), _private_key_pem(self._key))

    def serving(self, common_name: str) -> KeyPair:
        """A certificate for a server on loopback (`SERVING_NAMES`, `SERVING_ADDRESSES`)."""
        addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in SERVING_ADDRESSES]
        names = x509.SubjectAlternativeName([*(x509.DNSName(name) for name in SERVING_NAMES), *addresses])
        return self._issue(_name(common_name, ()), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, common_name: str, organizations: Sequence[str] = ()) -> KeyPair:
        """A certificate for a client.

        Args:
            common_name: the Kubernetes user.
            organizations: the Kubernetes groups.
        """
        return self._issue(_name(common_name, organizations), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + _CERTIFICATE_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _private_key_pem(key))


def new_rsa_key() -> rsa.RSAPrivateKey:
    """An RSA key of 2048 bits."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass(frozen=True)
class ServiceAccountKeys:
    """The keys by which ServiceAccount tokens are signed and checked, in PEM."""

    public: bytes
    private: bytes

    def __repr__(self) -> str:
        return "ServiceAccountKeys(public=..., private=...)"

    @classmethod
    def generate(cls) -> ServiceAccountKeys:
        """A new pair. RSA: Cluster API reads `<cluster>-sa` as RSA."""
        key = new_rsa_key()
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM,
            serialization.PublicFormat.SubjectPublicKeyInfo,
        )
        return cls(public=public, private=_private_key_pem(key))


def kubeconfig(
    server: str, authority: bytes, *, user: KeyPair | None = None, token: str = "", namespace: str = ""
) -> bytes:
    """A kubeconfig with everything inline. JSON, which every reader of YAML reads.

    Args:
        server: URL of the apiserver.
        authority: PEM of the certificate authority that signed the apiserver's certificate.
        user: client certificate to log in with.
        token: bearer token to log in with, when there is no `user`.
        namespace: default namespace of the context.
    """
    credentials: dict[str, str] = {"token": token}
    if user is not None:
        credentials = {"client-certificate-data": _base64(user.certificate), "client-key-data": _base64(user.key)}
    context = {"cluster": "capox", "user": "capox"} | ({"namespace": namespace} if namespace else {})
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "capox", "cluster": {"server": server, "certificate-authority-data": _base64(authority)}},
        ],
        "users": [{"name": "capox", "user": credentials}],
        "contexts": [{"name": "capox", "context": context}],
        "current-context": "capox",
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


class ControlPlanePKI:
    """All of one control plane's keys, made in memory and written to a directory.

    Attributes:
        directory: where the files are.
        authority: signs the apiserver, its clients and, for kube-controller-manager, certificate signing requests.
        webhook_authority: signs the webhook servers' certificate; its certificate goes into `caBundle` fields.
        service_account_keys: sign ServiceAccount tokens.
        admin: client certificate of group system:masters.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = CertificateAuthority("kubernetes")
        self.webhook_authority = CertificateAuthority("webhook")
        self.front_proxy_authority = CertificateAuthority("front-proxy")
        self.service_account_keys = ServiceAccountKeys.generate()
        self.admin = self.authority.client("kubernetes-admin", ["system:masters"])
        self._write()

    def _write(self) -> None:
        directory = self.directory
        self.authority.key_pair.write(directory, "ca")
        self.authority.serving("kube-apiserver").write(directory, "apiserver")
        self.authority.serving("kube-controller-manager").write(directory, "controller-manager-serving")
        self.admin.write(directory, "admin")
        self.front_proxy_authority.key_pair.write(directory, "front-proxy-ca")
        self.front_proxy_authority.client("front-proxy-client").write(directory, "front-proxy-client")
        self.webhook_authority.serving("webhook").write(directory / "webhook", "tls")
        (directory / "service-account.pub").write_bytes(self.service_account_keys.public)
        write_private(directory / "service-account.key", self.service_account_keys.private)

    def write_kubeconfigs(self, server: str) -> None:
        """Write `admin.kubeconfig` and `controller-manager.kubeconfig`.

        Args:
            server: URL of the apiserver.
        """
        authority = self.authority.key_pair.certificate
        controller_manager = self.authority.client("system:kube-controller-manager")
        write_private(self.directory / "admin.kubeconfig", kubeconfig(server, authority, user=self.admin))
        write_private(
            self.directory / "controller-manager.kubeconfig",
            kubeconfig(server, authority, user=controller_manager),
        )
