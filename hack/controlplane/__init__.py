"""A real Kubernetes control plane with the real Cluster API controllers, on loopback, for tests and demonstrations.

No container, no root, no cluster: the programs are plain binaries (`binaries`), started by a small process that
outlives nobody (`keeper`, `processes`), with certificates made on the spot (`pki`).

- `plane.ControlPlane`: etcd, kube-apiserver, kube-controller-manager and a kubeconfig.
- `capi.ManagementCluster`: a control plane on which Cluster API runs, webhooks served.
- `workload.WorkloadCluster`: a second, lighter control plane that poses as a Cluster's own API.

People use `python -m hack.controlplane`; tests use the classes.
"""
