"""The admission policy that a schema cannot state: an OxideMachine's spec stays what its instance was made from.

Made from the model, a rule a field, so that a refusal names the field and an added field is covered by itself. A rule
in the CRD could not let Cluster API's own writes through as they are (C-IM-13).
"""

from __future__ import annotations

from typing import Any, Final

from capox.api.v1alpha1 import GROUP, VERSION, OxideMachineSpec
from capox.kube.objects import wire_name

__all__ = ["MACHINE_SPEC_POLICY", "machine_spec_policy"]

MACHINE_SPEC_POLICY: Final = "capox-machine-spec"
"""The policy's name."""

# Set by the provider, once; its own rule is in the CRD. How an instance is kept up may change while it lives.
_MAY_CHANGE: Final = frozenset({"provider_id", "power_policy"})


def machine_spec_policy() -> list[dict[str, Any]]:
    """Give the ValidatingAdmissionPolicy and its binding as JSON objects."""
    fields = [wire_name(name) for name in OxideMachineSpec.model_fields if name not in _MAY_CHANGE]
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": MACHINE_SPEC_POLICY},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [GROUP],
                        "apiVersions": [VERSION],
                        "operations": ["UPDATE"],
                        "resources": ["oxidemachines"],
                        # As the apiserver would fill in; without it every apply would find a difference.
                        "scope": "*",
                    }
                ]
            },
            "validations": [_unchanged(field) for field in fields],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": MACHINE_SPEC_POLICY},
        "spec": {"policyName": MACHINE_SPEC_POLICY, "validationActions": ["Deny"]},
    }
    return [policy, binding]


def _unchanged(field: str) -> dict[str, str]:
    now, before = f"object.spec.{field}", f"oldObject.spec.{field}"
    return {
        "expression": f"has({now}) ? has({before}) && {now} == {before} : !has({before})",
        "message": f"spec.{field} of an OxideMachine cannot be changed; make a new Machine from a changed template",
        "reason": "Invalid",
    }
