"""The provider ID of an Oxide instance: `oxide://<instance uuid>`, the UUID in lower case.

Cluster API finds the Node of a Machine by comparing `Machine.spec.providerID` and `Node.spec.providerID` byte for byte
(C-IM-8), and the cloud controller manager writes the same text into the Node. So there is exactly one spelling, and its
meaning never changes.
"""

import re

__all__ = ["PROVIDER_ID_PATTERN", "PROVIDER_ID_PREFIX", "ProviderIDError", "format_provider_id", "parse_provider_id"]

PROVIDER_ID_PREFIX = "oxide://"
"""What every provider ID of an Oxide instance begins with."""

_UUID_PATTERN = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

PROVIDER_ID_PATTERN = f"^{PROVIDER_ID_PREFIX}{_UUID_PATTERN}$"
"""The whole provider ID as a regular expression that Python, JSON schema and CEL (RE2) read alike."""

_LOWER_CASE_UUID = re.compile(_UUID_PATTERN)


class ProviderIDError(ValueError):
    """A text is not the provider ID, or not the instance ID, that it was taken for."""


def format_provider_id(instance_id: str) -> str:
    """Give the provider ID of an instance.

    Args:
        instance_id: The instance's UUID with hyphens, as the rack reports it; letters of either case.

    Raises:
        ProviderIDError: `instance_id` is not a UUID with hyphens.
    """
    lowered = instance_id.lower()
    if not _LOWER_CASE_UUID.fullmatch(lowered):
        raise ProviderIDError(
            f"instance ID {instance_id!r} is not a UUID such as 'f47ac10b-58cc-4372-a567-0e02b2c3d479'; "
            "a provider ID is made from the instance's ID, not from its name"
        )
    return PROVIDER_ID_PREFIX + lowered


def parse_provider_id(provider_id: str) -> str:
    """Give the UUID of the instance that a provider ID names.

    Only the exact spelling is taken: a UUID in upper case would name the same instance on the rack, yet never equal the
    text that Cluster API compares it with.

    Args:
        provider_id: The text of `spec.providerID` of an OxideMachine, a Machine or a Node.

    Returns:
        The UUID in lower case with hyphens.

    Raises:
        ProviderIDError: The text has another prefix, or no lower-case UUID follows the prefix.
    """
    prefix, instance_id = provider_id[: len(PROVIDER_ID_PREFIX)], provider_id[len(PROVIDER_ID_PREFIX) :]
    if prefix != PROVIDER_ID_PREFIX:
        raise ProviderIDError(
            f"provider ID {provider_id!r} does not begin with {PROVIDER_ID_PREFIX!r}; it is not an Oxide instance's"
        )
    if _LOWER_CASE_UUID.fullmatch(instance_id):
        return instance_id
    if _LOWER_CASE_UUID.fullmatch(instance_id.lower()):
        raise ProviderIDError(f"provider ID {provider_id!r} has upper-case letters; it must be {provider_id.lower()!r}")
    raise ProviderIDError(
        f"provider ID {provider_id!r} has {instance_id!r} where the instance's UUID in lower case belongs, "
        f"as in '{PROVIDER_ID_PREFIX}f47ac10b-58cc-4372-a567-0e02b2c3d479'"
    )
