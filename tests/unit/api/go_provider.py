"""Objects as Oxide's own provider, written in Go, leaves them in the apiserver: what capox must take over as it is."""

from typing import Any

CLUSTER_NAME = "prod"
INSTANCE_ID = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
IMAGE_ID = "9a7e1b1e-3f0a-4b1e-8a57-0c5a4a4e2d11"


def condition(type_: str, status: str, reason: str) -> dict[str, Any]:
    """Give a condition of the Go provider: no generation, an empty message."""
    return {
        "lastTransitionTime": "2026-05-04T03:02:01Z",
        "message": "",
        "reason": reason,
        "status": status,
        "type": type_,
    }


def oxide_cluster() -> dict[str, Any]:
    """Give an OxideCluster with its floating IP attached. `ipPool: ""` is what the template wrote."""
    return {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
        "kind": "OxideCluster",
        "metadata": {
            "name": CLUSTER_NAME,
            "namespace": "default",
            "finalizers": ["oxidecluster.infrastructure.cluster.x-k8s.io"],
            "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER_NAME},
            "ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": CLUSTER_NAME, "uid": "c-1"}
            ],
        },
        "spec": {
            "controlPlaneEndpoint": {"host": "45.154.216.131", "port": 6443},
            "credentialsRef": {"name": "oxide-credentials", "namespace": "default"},
            "ipPool": "",
            "project": "kubernetes",
            "subnet": "default",
            "vpc": "default",
        },
        "status": {
            "conditions": [
                condition("Ready", "True", "FloatingIPProvisioned"),
                condition("FloatingIPAttached", "True", "FloatingIPAttached"),
            ],
            "initialization": {"provisioned": True},
        },
    }


def oxide_machine() -> dict[str, Any]:
    """Give an OxideMachine whose instance runs. The apiserver of the Go provider's CRD filled `blockSize` in."""
    return {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
        "kind": "OxideMachine",
        "metadata": {
            "name": "prod-control-plane-4xk2p",
            "namespace": "default",
            "finalizers": ["oxidemachine.infrastructure.cluster.x-k8s.io"],
            "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER_NAME, "cluster.x-k8s.io/control-plane": ""},
            "ownerReferences": [
                {
                    "apiVersion": "cluster.x-k8s.io/v1beta2",
                    "blockOwnerDeletion": True,
                    "controller": True,
                    "kind": "Machine",
                    "name": "prod-control-plane-4xk2p",
                    "uid": "m-1",
                }
            ],
        },
        "spec": {
            "dataDisks": [{"blockSize": 4096, "size": "20Gi"}],
            "diskSize": "50Gi",
            "imageID": IMAGE_ID,
            "ipPool": "",
            "memory": "8Gi",
            "nCPUs": 4,
            "providerID": f"oxide://{INSTANCE_ID}",
        },
        "status": {
            "conditions": [condition("Ready", "True", "InstanceRunning")],
            "initialization": {"provisioned": True},
        },
    }


def oxide_machine_before_its_instance() -> dict[str, Any]:
    """Give an OxideMachine that still waits for its bootstrap data: an empty `initialization`, no provider ID."""
    machine = oxide_machine()
    del machine["spec"]["providerID"]
    machine["status"] = {
        "conditions": [condition("Ready", "False", "WaitingForBootstrapData")],
        "initialization": {},
    }
    return machine


def oxide_machine_template() -> dict[str, Any]:
    """Give the OxideMachineTemplate of a control plane, made from the Go provider's template."""
    return {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
        "kind": "OxideMachineTemplate",
        "metadata": {"name": "prod-control-plane", "namespace": "default"},
        "spec": {
            "template": {
                "metadata": {"labels": {"team": "platform"}},
                "spec": {"diskSize": "50Gi", "imageID": IMAGE_ID, "ipPool": "", "memory": "8Gi", "nCPUs": 4},
            }
        },
    }
