"""Values at and beyond every limit of our kinds, with what the apiserver says of those beyond."""

import copy
from typing import Any, TypeAlias

from capox.api.v1alpha1 import API_VERSION

NAMESPACE = "crd-validation"
UUID = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
ANY = "any value"

CLUSTER_SPEC: dict[str, Any] = {"credentialsRef": {"name": "oxide-credentials"}, "project": "kubernetes"}
MACHINE_SPEC: dict[str, Any] = {"nCPUs": 4, "memory": "8Gi", "diskSize": "50Gi", "imageID": UUID}


def spec_of(kind: str) -> dict[str, Any]:
    """Give the least that the spec of a kind must hold."""
    return CLUSTER_SPEC if "Cluster" in kind else MACHINE_SPEC


def thing(kind: str, spec: dict[str, Any], name: str = "probe") -> dict[str, Any]:
    """Give an object of a kind; a template's spec is put where it belongs."""
    wrapped = {"template": {"spec": spec}} if kind.endswith("Template") else spec
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": wrapped,
    }


def changed(spec: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Give a spec with the field at a dotted path set, or left out for `ANY`."""
    result = copy.deepcopy(spec)
    *above, last = path.split(".")
    place = result
    for name in above:
        place = place.setdefault(name, {})
    if value is ANY:
        place.pop(last)
    else:
        place[last] = value
    return result


VALID = [
    ("OxideCluster", "vpc", ""),
    ("OxideCluster", "subnet", ""),
    ("OxideCluster", "ipPool", ""),
    ("OxideCluster", "ipType", ""),
    ("OxideCluster", "credentialsRef.namespace", ""),
    ("OxideCluster", "ipType", "v6"),
    ("OxideCluster", "controlPlaneFloatingIP", ""),
    ("OxideCluster", "controlPlaneFloatingIP", UUID),
    ("OxideCluster", "endpointMode", ""),
    ("OxideCluster", "endpointMode", "External"),
    ("OxideCluster", "clusterID", "c" * 63),
    ("OxideCluster", "antiAffinity", {}),
    ("OxideCluster", "firewall", {}),
    ("OxideCluster", "firewall", {"mode": "", "apiServerSources": []}),
    ("OxideCluster", "firewall", {"mode": "Managed", "apiServerSources": ["192.0.2.0/24", "2001:db8::/32"]}),
    ("OxideCluster", "antiAffinity", {"controlPlane": {"policy": "fail"}, "workers": {"policy": "allow"}}),
    ("OxideCluster", "project", UUID),
    ("OxideCluster", "project", "a" * 63),
    ("OxideCluster", "vpc", "a-B9"),
    ("OxideCluster", "vpc", f"{'a' * 20}-{UUID}"),
    ("OxideCluster", "ipPool", UUID.upper()),
    ("OxideCluster", "controlPlaneEndpoint", {}),
    ("OxideCluster", "controlPlaneEndpoint", {"host": ""}),
    ("OxideCluster", "controlPlaneEndpoint", {"host": "45.154.216.131", "port": 1}),
    ("OxideCluster", "controlPlaneEndpoint", {"host": "fd00:1122:3344::1", "port": 65535}),
    ("OxideCluster", "controlPlaneEndpoint", {"host": "API.prod-1.example.com"}),
    ("OxideCluster", "cloudControllerManager", {}),
    ("OxideCluster", "cloudControllerManager", {"mode": "", "image": "", "version": "", "placement": ""}),
    ("OxideCluster", "cloudControllerManager", {"mode": "Orphan", "credentialsRef": {"name": "oxide-ccm"}}),
    ("OxideCluster", "cloudControllerManager.image", f"registry.example.com:5000/a/b_c:v1.0.0@sha256:{'0f' * 32}"),
    ("OxideCluster", "cloudControllerManager.version", "v" * 128),
    ("OxideCluster", "cloudControllerManager.placement", "ManagementCluster"),
    ("OxideMachine", "providerID", ""),
    ("OxideMachine", "providerID", f"oxide://{UUID}"),
    ("OxideMachine", "nCPUs", 1),
    ("OxideMachine", "nCPUs", 254),
    ("OxideMachine", "memory", "1Gi"),
    ("OxideMachine", "memory", 1073741824),
    ("OxideMachine", "memory", "1.5Gi"),
    ("OxideMachine", "memory", "2e9"),
    ("OxideMachine", "memory", "1536Gi"),
    ("OxideMachine", "diskSize", "1Gi"),
    ("OxideMachine", "diskSize", "1023Gi"),
    ("OxideMachine", "imageID", UUID.upper()),
    ("OxideMachine", "antiAffinityGroups", [f"group-{number}" for number in range(16)]),
    ("OxideMachine", "sshPublicKeys", [f"key-{number}" for number in range(100)]),
    ("OxideMachine", "sshPublicKeys", []),
    ("OxideMachine", "ipPool", ""),
    ("OxideMachine", "subnet", ""),
    ("OxideMachine", "powerPolicy", ""),
    ("OxideMachine", "autoRestartPolicy", ""),
    ("OxideMachine", "cpuPlatform", ""),
    ("OxideMachine", "cpuPlatform", "amd_turin"),
    ("OxideMachine", "primaryNetworkInterface", {"ipType": "v4", "transitIPs": ["10.244.0.0/16", "fd00:1::/64"]}),
    ("OxideMachine", "networkInterfaces", [{"subnet": f"s{number}"} for number in range(7)]),
    ("OxideMachine", "dataDisks", [{"size": "1Gi", "type": "local", "reclaimPolicy": "Retain"}]),
    ("OxideMachine", "dataDisks", [{"size": "1Gi"}] * 11),
    ("OxideMachine", "dataDisks", [{"size": "1023Gi", "blockSize": size} for size in (512, 2048, 4096)]),
    ("OxideClusterTemplate", "controlPlaneEndpoint", {"port": 6443}),
    ("OxideMachineTemplate", "providerID", ""),
]


NOT_A_NAME_OR_ID = "is not a name on the rack (1 to 63 letters, digits and '-'"
NOT_A_NAME = "an ID is not taken here"
NOT_A_UUID = "is not a UUID such as"

# Kind, field below the spec, value, the field that the refusal names, what the refusal says.
Case: TypeAlias = tuple[str, str, Any, str, str]
INVALID: list[Case] = [
    ("OxideCluster", "credentialsRef", ANY, "spec.credentialsRef", "Required value"),
    ("OxideCluster", "credentialsRef.name", ANY, "spec.credentialsRef.name", "Required value"),
    ("OxideCluster", "credentialsRef.name", "", "spec.credentialsRef.name", "'' is not the name of a Secret"),
    ("OxideCluster", "credentialsRef.name", "Oxide", "spec.credentialsRef.name", "'Oxide' is not the name of a Secret"),
    ("OxideCluster", "credentialsRef.name", "o" * 254, "spec.credentialsRef.name", "may not be more than 253"),
    ("OxideCluster", "credentialsRef.namespace", "a.b", "spec.credentialsRef.namespace", "'a.b' is not the name of a"),
    ("OxideCluster", "credentialsRef.namespace", "n" * 64, "spec.credentialsRef.namespace", "may not be more than 63"),
    ("OxideCluster", "project", ANY, "spec.project", "Required value"),
    ("OxideCluster", "project", "", "spec.project", f"'' {NOT_A_NAME_OR_ID}"),
    ("OxideCluster", "project", "9lives", "spec.project", f"'9lives' {NOT_A_NAME_OR_ID}"),
    ("OxideCluster", "project", "ends-", "spec.project", f"'ends-' {NOT_A_NAME_OR_ID}"),
    ("OxideCluster", "project", "a" * 64, "spec.project", "may not be more than 63"),
    ("OxideCluster", "vpc", "under_score", "spec.vpc", f"'under_score' {NOT_A_NAME_OR_ID}"),
    ("OxideCluster", "vpc", UUID, "spec.vpc", NOT_A_NAME),
    ("OxideCluster", "vpc", "v" * 64, "spec.vpc", "may not be more than 63"),
    ("OxideCluster", "subnet", "Default", "spec.subnet", f"'Default' {NOT_A_NAME_OR_ID}"),
    ("OxideCluster", "subnet", UUID, "spec.subnet", NOT_A_NAME),
    ("OxideCluster", "subnet", "s" * 64, "spec.subnet", "may not be more than 63"),
    ("OxideCluster", "ipPool", "a b", "spec.ipPool", f"'a b' {NOT_A_NAME_OR_ID}"),
    ("OxideCluster", "ipPool", "p" * 64, "spec.ipPool", "may not be more than 63"),
    ("OxideCluster", "ipType", "ipv4", "spec.ipType", 'supported values: "", "v4", "v6"'),
    ("OxideCluster", "controlPlaneEndpoint.host", "1.2.3.400", "spec.controlPlaneEndpoint.host", "'1.2.3.400' is not"),
    ("OxideCluster", "controlPlaneEndpoint.host", "https://a", "spec.controlPlaneEndpoint.host", "or a DNS name"),
    ("OxideCluster", "controlPlaneEndpoint.host", "a" * 513, "spec.controlPlaneEndpoint.host", "more than 512"),
    ("OxideCluster", "controlPlaneEndpoint.port", 0, "spec.controlPlaneEndpoint.port", "greater than or equal to 1"),
    ("OxideCluster", "controlPlaneEndpoint.port", 65536, "spec.controlPlaneEndpoint.port", "than or equal to 65535"),
    ("OxideCluster", "controlPlaneFloatingIP", "a b", "spec.controlPlaneFloatingIP", f"'a b' {NOT_A_NAME_OR_ID}"),
    ("OxideCluster", "controlPlaneFloatingIP", "f" * 64, "spec.controlPlaneFloatingIP", "may not be more than 63"),
    ("OxideCluster", "endpointMode", "Kube-VIP", "spec.endpointMode", 'supported values: "", "FloatingIP", "External"'),
    ("OxideCluster", "antiAffinity", {"workers": {}}, "spec.antiAffinity.workers.policy", "Required value"),
    (
        "OxideCluster",
        "antiAffinity",
        {"controlPlane": {"policy": "maybe"}},
        "spec.antiAffinity.controlPlane.policy",
        'supported values: "allow", "fail"',
    ),
    ("OxideCluster", "firewall.mode", "On", "spec.firewall.mode", 'supported values: "", "Managed", "Unmanaged"'),
    (
        "OxideCluster",
        "firewall.apiServerSources",
        ["192.0.2.1"],
        "spec.firewall.apiServerSources[0]",
        "'192.0.2.1' is not a network such as",
    ),
    (
        "OxideCluster",
        "firewall.apiServerSources",
        [f"10.{number}.0.0/16" for number in range(65)],
        "spec.firewall.apiServerSources",
        "must have at most 64 items",
    ),
    ("OxideCluster", "clusterID", "a b", "spec.clusterID", "'a b' is not an identity of at most 63"),
    ("OxideCluster", "clusterID", "c" * 64, "spec.clusterID", "may not be more than 63"),
    (
        "OxideCluster",
        "cloudControllerManager.mode",
        "Off",
        "spec.cloudControllerManager.mode",
        'supported values: "", "Managed", "Unmanaged", "Orphan"',
    ),
    (
        "OxideCluster",
        "cloudControllerManager.credentialsRef.name",
        "A",
        "spec.cloudControllerManager.credentialsRef.name",
        "'A' is not the name of a Secret",
    ),
    (
        "OxideCluster",
        "cloudControllerManager.image",
        "a b",
        "spec.cloudControllerManager.image",
        "'a b' is not an image such as",
    ),
    (
        "OxideCluster",
        "cloudControllerManager.image",
        "i" * 513,
        "spec.cloudControllerManager.image",
        "may not be more than 512",
    ),
    (
        "OxideCluster",
        "cloudControllerManager.version",
        "-v1",
        "spec.cloudControllerManager.version",
        "'-v1' is not the tag of an image such as",
    ),
    (
        "OxideCluster",
        "cloudControllerManager.version",
        "v" * 129,
        "spec.cloudControllerManager.version",
        "may not be more than 128",
    ),
    (
        "OxideCluster",
        "cloudControllerManager.placement",
        "Rack",
        "spec.cloudControllerManager.placement",
        'supported values: "", "WorkloadCluster", "ManagementCluster"',
    ),
    ("OxideMachine", "providerID", "i-0123", "spec.providerID", "'i-0123' is not the provider ID of an Oxide instance"),
    ("OxideMachine", "providerID", f"oxide://{UUID.upper()}", "spec.providerID", "UUID in lower case"),
    ("OxideMachine", "providerID", f"oxide://{UUID}0", "spec.providerID", "may not be more than 44"),
    ("OxideMachine", "nCPUs", ANY, "spec.nCPUs", "Required value"),
    ("OxideMachine", "nCPUs", 0, "spec.nCPUs", "should be greater than or equal to 1"),
    ("OxideMachine", "nCPUs", 255, "spec.nCPUs", "should be less than or equal to 254"),
    ("OxideMachine", "memory", ANY, "spec.memory", "Required value"),
    ("OxideMachine", "memory", "1023Mi", "spec.memory", "'1023Mi' is not a quantity of bytes from 1Gi to 1536Gi"),
    ("OxideMachine", "memory", 8, "spec.memory", "'8' is not a quantity of bytes from 1Gi to 1536Gi"),
    ("OxideMachine", "memory", "1537Gi", "spec.memory", "'1537Gi' is not a quantity of bytes from 1Gi to 1536Gi"),
    ("OxideMachine", "memory", "-8Gi", "spec.memory", "'-8Gi' is not a quantity of bytes from 1Gi to 1536Gi"),
    ("OxideMachine", "memory", "1e10.5", "spec.memory", "'1e10.5' is not a quantity of bytes from 1Gi to 1536Gi"),
    ("OxideMachine", "memory", "8GB", "spec.memory", "should match"),
    ("OxideMachine", "memory", "", "spec.memory", "should match"),
    ("OxideMachine", "memory", "8." + "0" * 40 + "Gi", "spec.memory", "may not be more than 32"),
    ("OxideMachine", "diskSize", ANY, "spec.diskSize", "Required value"),
    ("OxideMachine", "diskSize", "1G", "spec.diskSize", "'1G' is not a quantity of bytes from 1Gi to 1023Gi"),
    ("OxideMachine", "diskSize", "1Ti", "spec.diskSize", "'1Ti' is not a quantity of bytes from 1Gi to 1023Gi"),
    ("OxideMachine", "imageID", ANY, "spec", "neither imageID nor image is set; set one of them"),
    ("OxideMachine", "imageID", "", "spec", "neither imageID nor image is set; set one of them"),
    ("OxideMachine", "imageID", "ubuntu-24", "spec.imageID", f"'ubuntu-24' {NOT_A_UUID}"),
    ("OxideMachine", "imageID", UUID.replace("-", ""), "spec.imageID", NOT_A_UUID),
    ("OxideMachine", "imageID", UUID + "0", "spec.imageID", "may not be more than 36"),
    ("OxideMachine", "antiAffinityGroups", ["ok", "-x"], "spec.antiAffinityGroups[1]", f"'-x' {NOT_A_NAME_OR_ID}"),
    ("OxideMachine", "antiAffinityGroups", ["a", "a"], "spec.antiAffinityGroups[1]", "Duplicate value"),
    ("OxideMachine", "antiAffinityGroups", ["g" * 64], "spec.antiAffinityGroups[0]", "may not be more than 63"),
    (
        "OxideMachine",
        "antiAffinityGroups",
        [f"g{number}" for number in range(17)],
        "spec.antiAffinityGroups",
        "must have at most 16 items",
    ),
    ("OxideMachine", "sshPublicKeys", ["ssh-rsa AAAA"], "spec.sshPublicKeys[0]", f"'ssh-rsa AAAA' {NOT_A_NAME_OR_ID}"),
    (
        "OxideMachine",
        "sshPublicKeys",
        [f"k{number}" for number in range(101)],
        "spec.sshPublicKeys",
        "must have at most 100 items",
    ),
    ("OxideMachine", "ipPool", "Pool", "spec.ipPool", f"'Pool' {NOT_A_NAME_OR_ID}"),
    ("OxideMachine", "ipPool", "p" * 64, "spec.ipPool", "may not be more than 63"),
    ("OxideMachine", "dataDisks", [{"size": "1Gi"}] * 12, "spec.dataDisks", "must have at most 11 items"),
    ("OxideMachine", "dataDisks", [{}], "spec.dataDisks[0].size", "Required value"),
    (
        "OxideMachine",
        "dataDisks",
        [{"size": "1024Gi"}],
        "spec.dataDisks[0].size",
        "'1024Gi' is not a quantity",
    ),
    ("OxideMachine", "dataDisks", [{"size": 1}], "spec.dataDisks[0].size", "from 1Gi to 1023Gi"),
    (
        "OxideMachine",
        "dataDisks",
        [{"size": "1Gi", "blockSize": 1024}],
        "spec.dataDisks[0].blockSize",
        'supported values: "512", "2048", "4096"',
    ),
    ("OxideMachine", "dataDisks", [{"size": "1Gi", "type": "ssd"}], "spec.dataDisks[0].type", "supported values"),
    (
        "OxideMachine",
        "dataDisks",
        [{"size": "1Gi", "reclaimPolicy": "Keep"}],
        "spec.dataDisks[0].reclaimPolicy",
        'supported values: "", "Delete", "Retain"',
    ),
    ("OxideMachine", "image", {"name": "debian"}, "spec", "imageID and image exclude each other"),
    ("OxideMachine", "image", {"name": "Debian"}, "spec.image.name", NOT_A_NAME),
    ("OxideMachine", "image", {"name": "debian", "project": "-"}, "spec.image.project", f"'-' {NOT_A_NAME_OR_ID}"),
    ("OxideMachine", "subnet", UUID, "spec.subnet", NOT_A_NAME),
    (
        "OxideMachine",
        "primaryNetworkInterface",
        {"ipType": "ipv4"},
        "spec.primaryNetworkInterface.ipType",
        'supported values: "", "v4", "v6", "dual"',
    ),
    (
        "OxideMachine",
        "primaryNetworkInterface",
        {"transitIPs": ["10.0.0.0"]},
        "spec.primaryNetworkInterface.transitIPs[0]",
        "'10.0.0.0' is not a network such as",
    ),
    (
        "OxideMachine",
        "primaryNetworkInterface",
        {"transitIPs": [f"10.{number}.0.0/16" for number in range(65)]},
        "spec.primaryNetworkInterface.transitIPs",
        "must have at most 64 items",
    ),
    ("OxideMachine", "networkInterfaces", [{}], "spec.networkInterfaces[0].subnet", "Required value"),
    ("OxideMachine", "networkInterfaces", [{"subnet": "S"}], "spec.networkInterfaces[0].subnet", NOT_A_NAME),
    (
        "OxideMachine",
        "networkInterfaces",
        [{"subnet": f"s{number}"} for number in range(8)],
        "spec.networkInterfaces",
        "must have at most 7 items",
    ),
    (
        "OxideMachine",
        "networkInterfaces",
        [{"subnet": "s", "ipType": "both"}],
        "spec.networkInterfaces[0].ipType",
        "supported values",
    ),
    (
        "OxideMachine",
        "networkInterfaces",
        [{"subnet": "s", "transitIPs": ["net"]}],
        "spec.networkInterfaces[0].transitIPs[0]",
        "'net' is not a network such as",
    ),
    (
        "OxideMachine",
        "networkInterfaces",
        [{"subnet": "s", "transitIPs": [f"10.{number}.0.0/16" for number in range(65)]}],
        "spec.networkInterfaces[0].transitIPs",
        "must have at most 64 items",
    ),
    ("OxideMachine", "powerPolicy", "Off", "spec.powerPolicy", 'supported values: "", "KeepRunning", "Observe"'),
    ("OxideMachine", "autoRestartPolicy", "always", "spec.autoRestartPolicy", "supported values"),
    ("OxideMachine", "cpuPlatform", "intel", "spec.cpuPlatform", "supported values"),
    ("OxideClusterTemplate", "project", "9lives", "spec.template.spec.project", f"'9lives' {NOT_A_NAME_OR_ID}"),
    ("OxideMachineTemplate", "nCPUs", 0, "spec.template.spec.nCPUs", "should be greater than or equal to 1"),
    (
        "OxideMachineTemplate",
        "providerID",
        f"oxide://{UUID}",
        "spec.template.spec.providerID",
        f"every machine made from it would claim the instance of 'oxide://{UUID}'; leave the field out",
    ),
]
