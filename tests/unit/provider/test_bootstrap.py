"""From a bootstrap Secret to user data."""

from __future__ import annotations

import base64
import gzip
import random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from capox.kube.objects import Secret
from capox.provider.bootstrap import USER_DATA_BYTES_MAX, BootstrapRefused, UserData, user_data
from capox.provider.cidata import bytes_to_be_read, volume_bytes


def bootstrap_secret(value: bytes | None, form: bytes | None = None) -> Secret:
    """Give a bootstrap Secret as the bootstrap provider stores it."""
    data = {key: base64.b64encode(raw).decode() for key, raw in (("value", value), ("format", form)) if raw is not None}
    metadata = {"name": "web-0", "namespace": "team"}
    return Secret.model_validate({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


@pytest.mark.parametrize("form", [None, b"", b"cloud-config"])
@pytest.mark.parametrize("size", [1, USER_DATA_BYTES_MAX])
def test_data_that_fits_is_passed_on(size: int, form: bytes | None) -> None:
    """Up to 32 KiB arrive byte for byte."""
    value = random.Random(size).randbytes(size)

    found = user_data(bootstrap_secret(value, form))

    assert isinstance(found, UserData)
    assert value == found.data.get_secret_value()


def test_larger_data_is_compressed_the_same_each_time() -> None:
    """Beyond 32 KiB cloud-init undoes gzip; a repeated attempt sends the same bytes."""
    value = b"#cloud-config\n" + b"write_files: []\n" * 4000

    found = [user_data(bootstrap_secret(value)) for _ in range(2)]

    packed = [each.data.get_secret_value() for each in found if isinstance(each, UserData)]
    assert value == gzip.decompress(packed[0])
    assert packed[0] == packed[1]


def test_data_that_cannot_be_made_to_fit_is_refused_in_words() -> None:
    """The message has the sizes and the limit, and not a byte of the data."""
    value = random.Random(7).randbytes(USER_DATA_BYTES_MAX + 1)

    found = user_data(bootstrap_secret(value))

    assert isinstance(found, BootstrapRefused)
    assert found.reason == "UserDataTooLarge"
    assert str(len(value)) in found.message
    assert str(USER_DATA_BYTES_MAX) in found.message


@pytest.mark.parametrize("form", [b"ignition", b"talos", b"\xff"])
def test_other_formats_make_no_instance(form: bytes) -> None:
    """A format that the image does not understand is refused before anything is made (C-IM-2)."""
    found = user_data(bootstrap_secret(b"{}", form))

    assert isinstance(found, BootstrapRefused)
    assert found.reason == "UnsupportedBootstrapFormat"


@pytest.mark.parametrize("value", [None, b""])
def test_empty_secret_is_waited_for(value: bytes | None) -> None:
    """A Secret without data is one that the bootstrap provider has not filled yet."""
    found = user_data(bootstrap_secret(value))

    assert isinstance(found, BootstrapRefused)
    assert found.reason == "WaitingForBootstrapData"


def test_nothing_shows_the_data() -> None:
    """Neither the user data nor the Secret shows a byte of it when printed (C-IM-2)."""
    secret = bootstrap_secret(b"join-token-3f9a")

    assert "join-token" not in repr(user_data(secret)) + repr(secret) + str(secret)


TALOS = b"version: v1alpha1\ndebug: false\nmachine:\n  type: worker\n"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (TALOS, "TalosConfig"),
        (TALOS, ""),
        (b"# made by hand\n\n---\nversion: v1alpha1\n", ""),
        (b"---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: web\n", ""),
        (b"machine: {type: worker}", "TalosConfig"),
        (b"version: v1alpha1\nmachine:\n  files:\n    - content: |+\n        a line\n\n", ""),
    ],
)
def test_small_talos_configuration_is_padded(value: bytes, kind: str) -> None:
    """Its volume reaches past 34 KiB, the configuration means the same, and a repeated attempt sends the same."""
    found = user_data(bootstrap_secret(value), kind)

    assert isinstance(found, UserData)
    padded = found.data.get_secret_value()
    assert padded.startswith(value)
    assert volume_bytes(len(padded)) >= 34 * 1024
    assert len(padded) <= USER_DATA_BYTES_MAX
    assert list(yaml.safe_load_all(padded)) == list(yaml.safe_load_all(value))
    assert found == user_data(bootstrap_secret(value), kind)


@pytest.mark.parametrize(
    "value",
    [
        b"#cloud-config\nversion: v1alpha1\n",
        b"#!/bin/sh\necho version: v1alpha1\n",
        b"network:\n  version: v1alpha1\n",
        b"version: v1alpha10\n",
    ],
)
def test_other_data_is_not_padded(value: bytes) -> None:
    """What is not Talos' arrives byte for byte."""
    found = user_data(bootstrap_secret(value), "KubeadmConfig")

    assert isinstance(found, UserData)
    assert found.data.get_secret_value() == value


@given(size=st.integers(0, USER_DATA_BYTES_MAX))
def test_padding_is_no_more_than_is_needed(size: int) -> None:
    """Whatever the length: the volume is large enough, one sector less would not do, and 32 KiB are never exceeded."""
    wanted = bytes_to_be_read(size)

    assert size <= wanted <= USER_DATA_BYTES_MAX
    assert volume_bytes(wanted) >= 34 * 1024
    assert wanted == size or volume_bytes(wanted - 1) < 34 * 1024 or volume_bytes(wanted) == 34 * 1024


@pytest.mark.parametrize("size", [1, 511, 512, 513, 16383, 16384, 16385, USER_DATA_BYTES_MAX])
def test_padded_length_is_exact(size: int) -> None:
    """Also where only a few bytes are missing."""
    value = TALOS[:18] + b"#" * (size - 18) if size > 18 else TALOS[:size]

    found = user_data(bootstrap_secret(value), "TalosConfig")

    assert isinstance(found, UserData)
    assert len(found.data.get_secret_value()) == bytes_to_be_read(size)


def test_talos_configuration_is_never_compressed() -> None:
    """Talos reads no gzip: what is too large is refused, though it would compress well."""
    value = TALOS + b"# comment\n" * 4000

    found = user_data(bootstrap_secret(value), "TalosConfig")

    assert isinstance(found, BootstrapRefused)
    assert found.reason == "UserDataTooLarge"
    assert "Talos" in found.message
