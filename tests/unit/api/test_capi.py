"""The views of Cluster API's kinds find what capox reads, and nothing else matters."""

from capox.api.capi import Cluster, Machine


def test_a_cluster_is_read() -> None:
    """Pause, endpoint, references and progress are found where Cluster API v1beta2 keeps them."""
    cluster = Cluster.model_validate(
        {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Cluster",
            "metadata": {"name": "prod", "namespace": "default", "deletionTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {
                "paused": True,
                "clusterNetwork": {"pods": {"cidrBlocks": ["10.0.0.0/8"]}},
                "controlPlaneEndpoint": {"host": "45.154.216.131", "port": 6443},
                "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "K", "name": "prod-cp"},
                "infrastructureRef": {
                    "apiGroup": "infrastructure.cluster.x-k8s.io",
                    "kind": "OxideCluster",
                    "name": "prod-x7f",
                },
            },
            "status": {"initialization": {"infrastructureProvisioned": True}, "phase": "Provisioned"},
        }
    )

    assert cluster.spec.paused is True
    assert cluster.spec.control_plane_endpoint is not None
    assert cluster.spec.control_plane_endpoint.host == "45.154.216.131"
    assert cluster.spec.infrastructure_ref is not None
    assert (cluster.spec.infrastructure_ref.kind, cluster.spec.infrastructure_ref.name) == ("OxideCluster", "prod-x7f")
    assert cluster.spec.control_plane_ref is not None
    assert cluster.status.initialization.infrastructure_provisioned is True
    assert cluster.status.initialization.control_plane_initialized is None
    assert cluster.metadata.is_being_deleted


def test_a_cluster_without_anything_is_read() -> None:
    """A Cluster that Cluster API has not looked at yet has neither status nor endpoint."""
    cluster = Cluster.model_validate({"apiVersion": "g/v1", "kind": "Cluster", "metadata": {"name": "new"}})

    assert cluster.spec.paused is None
    assert cluster.spec.control_plane_endpoint is None
    assert cluster.status.initialization.infrastructure_provisioned is None


def test_a_machine_is_read() -> None:
    """Cluster name, bootstrap Secret, identity, version, node and role are found."""
    machine = Machine.model_validate(
        {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Machine",
            "metadata": {"name": "prod-cp-1", "labels": {"cluster.x-k8s.io/control-plane": ""}},
            "spec": {
                "clusterName": "prod",
                "bootstrap": {"configRef": {"kind": "KubeadmConfig"}, "dataSecretName": "prod-cp-1"},
                "infrastructureRef": {"apiGroup": "g", "kind": "OxideMachine", "name": "prod-cp-1"},
                "providerID": "oxide://f47ac10b-58cc-4372-a567-0e02b2c3d479",
                "version": "v1.36.3",
            },
            "status": {"nodeRef": {"name": "capi-default-prod-cp-1"}},
        }
    )

    assert machine.is_control_plane
    assert (machine.spec.cluster_name, machine.spec.version) == ("prod", "v1.36.3")
    assert machine.spec.bootstrap.data_secret_name == "prod-cp-1"
    assert machine.spec.provider_id == "oxide://f47ac10b-58cc-4372-a567-0e02b2c3d479"
    assert machine.status.node_ref is not None
    assert machine.status.node_ref.name == "capi-default-prod-cp-1"


def test_a_machine_without_bootstrap_data_is_a_worker_that_waits() -> None:
    """No Secret name means that the bootstrap provider is not done (C-IM-1); no label means a worker (C-IM-6)."""
    machine = Machine.model_validate(
        {"apiVersion": "g/v1", "kind": "Machine", "metadata": {"name": "w"}, "spec": {"bootstrap": {}}}
    )

    assert machine.spec.bootstrap.data_secret_name is None
    assert not machine.is_control_plane
