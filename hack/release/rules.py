"""What clusterctl, Pod Security and our own promise of least rights ask of the components file. Pure.

Each rule takes the objects and gives its findings as sentences; an empty list is a release that installs. The rules of
the CRDs themselves are tested where they are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Objects = Sequence[dict[str, Any]]
    Rule = Callable[[Objects], Iterator[str]]

LABELS: Final = {"cluster.x-k8s.io/provider": "infrastructure-oxide", "clusterctl.cluster.x-k8s.io": ""}
PREFIX: Final = "capox-"
_POLICY: Final = "ValidatingAdmissionPolicy"
_CLUSTER_SCOPED: Final = frozenset(
    {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", _POLICY, f"{_POLICY}Binding"}
)
_WEBHOOKS: Final = frozenset({"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"})
_SECRET_VERBS: Final = frozenset({"get", "patch"})


def findings(objects: Objects) -> list[str]:
    """Everything that is wrong with the objects of a components file."""
    return [finding for rule in RULES for finding in rule(objects)]


def one_namespace(objects: Objects) -> Iterator[str]:
    """One Namespace, so that clusterctl knows where to install (L-10), in which everything namespaced is (L-11)."""
    namespaces = _of(objects, "Namespace")
    if len(namespaces) != 1:
        yield f"{len(namespaces)} Namespaces; clusterctl takes one"
        return
    name = _name(namespaces[0])
    for each in objects:
        if each["kind"] not in _CLUSTER_SCOPED and each["metadata"].get("namespace") != name:
            yield f"{_title(each)}: is not in namespace {name}"
        for subject in each.get("subjects") or []:
            if subject.get("namespace") != name:
                yield f"{_title(each)}: its subject {subject.get('name')} is not in namespace {name}"


def labels(objects: Objects) -> Iterator[str]:
    """Labels by which clusterctl, and who installs without it, find what belongs to the provider (C-ALL-4, L-13)."""
    for each in objects:
        found = each["metadata"].get("labels") or {}
        for label, value in LABELS.items():
            if found.get(label) != value:
                yield f"{_title(each)}: label {label} is {found.get(label)!r}, not {value!r}"


def names(objects: Objects) -> Iterator[str]:
    """Names that tell whose they are; cluster roles named after the namespace, else no upgrade removes them (L-20)."""
    prefixes = [f"{_name(namespace)}-" for namespace in _of(objects, "Namespace")]
    for each in objects:
        if each["kind"] in {"ClusterRole", "ClusterRoleBinding"}:
            if prefixes and not _name(each).startswith(prefixes[0]):
                yield f"{_title(each)}: its name does not begin with {prefixes[0]}"
        elif each["kind"] != "CustomResourceDefinition" and not _name(each).startswith(PREFIX):
            yield f"{_title(each)}: its name does not begin with {PREFIX}"


def substitution(objects: Objects) -> Iterator[str]:
    """Nothing that clusterctl would take for a variable that the user has to set (L-5)."""
    for each in objects:
        for text in _texts(each):
            if "${" in text:
                yield f"{_title(each)}: clusterctl would replace a variable in {text[:60]!r}"


def manager(objects: Objects) -> Iterator[str]:
    """One Deployment whose container `manager` clusterctl waits for (L-14) and can rename the image of (L-15)."""
    deployments = _of(objects, "Deployment")
    if len(deployments) != 1:
        yield f"{len(deployments)} Deployments; one is the manager"
    namespaces = [_name(namespace) for namespace in _of(objects, "Namespace")]
    for each in deployments:
        containers = [container for container in _pod(each)["containers"] if container["name"] == "manager"]
        if not containers:
            yield f"{_title(each)}: no container is named manager"
        for container in containers:
            tag = container["image"].partition("@")[0].rpartition("/")[2].partition(":")[2]
            if not tag or tag == "latest":
                yield f"{_title(each)}: its image {container['image']} has no tag that stays"
            for argument in container.get("args") or []:
                # clusterctl may install into another namespace, and leaves arguments alone.
                if any(name in argument for name in namespaces):
                    yield f"{_title(each)}: argument {argument} names the namespace; take it from the downward API"


def no_webhooks(objects: Objects) -> Iterator[str]:
    """No webhook: one without its server, as during an upgrade, stops core and garbage collection (L-32)."""
    for each in objects:
        if each["kind"] in _WEBHOOKS:
            yield f"{_title(each)}: webhooks are not used; write a {_POLICY}"


def pod_security(objects: Objects) -> Iterator[str]:
    """The profile `restricted`, and nothing of the root file system can be written."""
    for each in _of(objects, "Deployment"):
        pod = _pod(each)
        context = pod.get("securityContext") or {}
        if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
            yield f"{_title(each)}: it must run as a user that is not root"
        if (context.get("seccompProfile") or {}).get("type") != "RuntimeDefault":
            yield f"{_title(each)}: its seccompProfile is not RuntimeDefault"
        for share in ("hostNetwork", "hostPID", "hostIPC"):
            if pod.get(share):
                yield f"{_title(each)}: {share} is set"
        for container in [*pod["containers"], *(pod.get("initContainers") or [])]:
            yield from (f"{_title(each)}: container {container['name']}: {what}" for what in _liberties(container))


def _liberties(container: dict[str, Any]) -> Iterator[str]:
    context = container.get("securityContext") or {}
    if context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "readOnlyRootFilesystem is not true"
    if (context.get("capabilities") or {}).get("drop") != ["ALL"]:
        yield "it does not drop all capabilities"


def least_rights(objects: Objects) -> Iterator[str]:
    """No wildcards; of Secrets, which are everybody's, no more than to read one by name and to patch it."""
    for each in [*_of(objects, "ClusterRole"), *_of(objects, "Role")]:
        for rule in each.get("rules") or []:
            granted = [*rule.get("apiGroups", []), *rule.get("resources", []), *rule["verbs"]]
            if "*" in granted:
                yield f"{_title(each)}: it grants *"
            beyond = set(rule["verbs"]) - _SECRET_VERBS
            if any(resource.startswith("secrets") for resource in rule.get("resources", [])) and beyond:
                yield f"{_title(each)}: it may {', '.join(sorted(beyond))} secrets"


def references(objects: Objects) -> Iterator[str]:
    """Bindings, policies and the Pod name roles, policies and accounts that are there."""
    there = {(each["kind"], _name(each)) for each in objects}

    def missing(each: dict[str, Any], kind: str, name: str) -> Iterator[str]:
        if (kind, name) not in there:
            yield f"{_title(each)}: there is no {kind} {name}"

    for each in objects:
        if "roleRef" in each:
            yield from missing(each, each["roleRef"]["kind"], each["roleRef"]["name"])
            for subject in each["subjects"]:
                yield from missing(each, subject["kind"], subject["name"])
        elif each["kind"] == "Deployment":
            yield from missing(each, "ServiceAccount", _pod(each).get("serviceAccountName", "default"))
        elif each["kind"] == f"{_POLICY}Binding":
            yield from missing(each, _POLICY, each["spec"]["policyName"])


def policies(objects: Objects) -> Iterator[str]:
    """Every policy is in force: it is bound, denies, and fails closed."""
    bound = {
        each["spec"]["policyName"]: each["spec"].get("validationActions") for each in _of(objects, f"{_POLICY}Binding")
    }
    for each in _of(objects, _POLICY):
        if bound.get(_name(each)) != ["Deny"]:
            yield f"{_title(each)}: no binding makes it deny"
        if each["spec"].get("failurePolicy") != "Fail":
            yield f"{_title(each)}: its failurePolicy is not Fail"


RULES: Final[tuple[Rule, ...]] = (
    one_namespace,
    labels,
    names,
    substitution,
    manager,
    no_webhooks,
    pod_security,
    least_rights,
    references,
    policies,
)


def _of(objects: Objects, kind: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] == kind]


def _name(each: dict[str, Any]) -> str:
    name: str = each["metadata"]["name"]
    return name


def _title(each: dict[str, Any]) -> str:
    return f"{each['kind']} {_name(each)}"


def _pod(deployment: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return pod


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from (key, *_texts(value))
    elif isinstance(node, list):
        for value in node:
            yield from _texts(value)
