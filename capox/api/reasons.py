"""The words of our conditions: their types and their reasons, each with its meaning.

Reasons are few and stable: programs compare them, and `clusterctl describe` groups machines by them (L-35). What varies
goes into a condition's message.
"""

import re
from enum import StrEnum
from typing import Self

__all__ = ["ConditionType", "Reason", "instance_reason"]


class _Word(StrEnum):
    """A word of the API together with its meaning, which the reference page prints."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> Self:
        """Make the word."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member


class ConditionType(_Word):
    """The types of conditions in `status.conditions`. Ready is what Cluster API mirrors (C-IC-6, C-IM-14)."""

    READY = "Ready", "The infrastructure is as it should be. Cluster API shows it on the Cluster or Machine."
    PAUSED = "Paused", "Nothing is changed, on the rack or here; the message says what pauses it."
    DELETING = "Deleting", "The object is being deleted; the message says what is waited for."
    FLOATING_IP_ATTACHED = "FloatingIPAttached", "A control plane instance has the floating IP (OxideCluster)."
    CREDENTIALS_VALID = "CredentialsValid", "The rack accepts the credentials (OxideCluster)."
    CLOUD_CONTROLLER_MANAGER_READY = "CloudControllerManagerReady", "The cloud controller manager runs (OxideCluster)."
    FIREWALL_READY = "FirewallReady", "The VPC's firewall lets the cluster's traffic in (OxideCluster)."
    INSTANCE_PROVISIONED = "InstanceProvisioned", "The instance and its disks were made (OxideMachine)."
    BOOTSTRAP_DATA_READY = "BootstrapDataReady", "The bootstrap data is there and fits the instance (OxideMachine)."


class Reason(_Word):
    """The reasons of conditions, but for those that tell an instance's run state: `instance_reason` gives them."""

    PAUSED = "Paused", "Cluster.spec.paused is set, or the object's annotation cluster.x-k8s.io/paused."
    NOT_PAUSED = "NotPaused", "Nothing pauses the object."
    DELETING = "Deleting", "Deletion was asked for."
    NOT_DELETING = "NotDeleting", "Deletion was not asked for."
    FLOATING_IP_PROVISIONED = "FloatingIPProvisioned", "The floating IP of the control plane exists."
    FLOATING_IP_ATTACHED = "FloatingIPAttached", "The floating IP is attached to a control plane instance."
    WAITING_FOR_CONTROL_PLANE_MACHINE = "WaitingForControlPlaneMachine", "No instance can take the floating IP yet."
    WAITING_FOR_BOOTSTRAP_DATA = "WaitingForBootstrapData", "The bootstrap provider has not made the data yet."
    USER_DATA_TOO_LARGE = "UserDataTooLarge", "The bootstrap data is larger than 32 KiB even when compressed."
    UNSUPPORTED_BOOTSTRAP_FORMAT = "UnsupportedBootstrapFormat", "The bootstrap data is not in cloud-config format."
    INSTANCE_NOT_FOUND = "InstanceNotFound", "The instance was there and is gone; it is not made again."
    INSTANCE_DELETED = "InstanceDeleted", "The instance was deleted together with this object."
    INSTANCE_UNKNOWN = "InstanceUnknown", "The rack reported no run state."
    INSUFFICIENT_CAPACITY = (
        "InsufficientCapacity",
        "The rack has no room for the instance; it is tried again slowly.",
    )
    INVALID_SPEC = "InvalidSpec", "The rack refuses what the spec asks for; the message has the rack's words."
    NAME_CONFLICT = "NameConflict", "Something that is not this object's has the name on the rack; it is left alone."
    CREDENTIALS_INVALID = "CredentialsInvalid", "The credentials are missing, incomplete, or refused by the rack."
    FIREWALL_RULES_IN_PLACE = "FirewallRulesInPlace", "The rules are there that let the cluster's traffic in."
    FIREWALL_RULE_MISSING = "FirewallRuleMissing", "A rule is missing; the message says what it has to let in."
    NODES_INITIALIZED_BY_ANOTHER = "NodesInitializedByAnother", "Another cloud controller manager serves the cluster."
    SHARED_CREDENTIALS = "SharedCredentials", "The cloud controller manager uses the cluster's own credentials."
    CREDENTIALS_TOO_POWERFUL = "CredentialsTooPowerful", "The credentials may do too much to be put into a cluster."
    CREDENTIALS_NOT_ALLOWED = (
        "CredentialsNotAllowed",
        "The Secret is in another namespace and does not allow its use for clusters of this one.",
    )
    RUNNING = "Running", "The cloud controller manager runs with credentials of its own."
    INSTALLING = "Installing", "The cloud controller manager was installed and is not ready yet."
    UPGRADING = "Upgrading", "The cloud controller manager is being upgraded with the provider."
    UPGRADE_FAILED = "UpgradeFailed", "It did not become ready after an upgrade; no further cluster is upgraded."
    WAITING_FOR_WORKLOAD_CLUSTER = "WaitingForWorkloadCluster", "The cluster's API or its first Node is not there yet."
    WORKLOAD_CLUSTER_UNREACHABLE = "WorkloadClusterUnreachable", "The cluster's API does not answer as it should."
    KUBECONFIG_REFUSED = "KubeconfigRefused", "The cluster's kubeconfig asks for what is not done with a tenant's data."
    INVALID_CONFIGURATION = "InvalidConfiguration", "What is asked for of the cloud controller manager does not work."
    UNMANAGED = "Unmanaged", "The provider keeps no cloud controller manager in the cluster, as asked for."
    ORPHANED = "Orphaned", "The cloud controller manager is left as it is, as asked for."


def instance_reason(run_state: str) -> str:
    """Give the reason of Ready that tells an instance's run state: `running` becomes `InstanceRunning`.

    Args:
        run_state: The run state as the rack reports it; one that capox has never heard of is no error.
    """
    words = re.findall("[A-Za-z0-9]+", run_state)
    if not words:
        return Reason.INSTANCE_UNKNOWN.value
    return "Instance" + "".join(word[0].upper() + word[1:] for word in words)
