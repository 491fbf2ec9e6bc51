"""The seed of a guest: what cloud-init is given, as Nexus makes it (semantics 9.1)."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence

from capox.rack import records
from capox.rack.state import Rack

# Where cloud-init's NoCloud data source looks for files. A real rack has them on a disk labelled `cidata`.
DIRECTORY = "var/lib/cloud/seed/nocloud"


def public_keys(rack: Rack, instance: records.Instance) -> list[str]:
    """The instance's SSH keys that their owner still has."""
    found = (rack.ssh_keys.by_id(identity) for identity in instance.ssh_keys)
    return [key.public_key for key in found if key is not None]


def meta_data(instance: records.Instance, keys: Sequence[str]) -> bytes:
    """The file `meta-data`: JSON with these three keys and no others."""
    content = {"instance-id": instance.id, "local-hostname": instance.hostname, "public-keys": list(keys)}
    return json.dumps(content).encode()


def archive(instance: records.Instance, keys: Sequence[str]) -> bytes:
    """Both files as a tar archive, to be unpacked at a guest's root; only the guest's root can read them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        # The directories above are the image's own; what is missing of them is made on the way.
        directory = tarfile.TarInfo(DIRECTORY)
        directory.type, directory.mode = tarfile.DIRTYPE, 0o700
        tar.addfile(directory)
        for name, content in (("meta-data", meta_data(instance, keys)), ("user-data", instance.user_data)):
            member = tarfile.TarInfo(f"{DIRECTORY}/{name}")
            member.mode, member.size = 0o600, len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
