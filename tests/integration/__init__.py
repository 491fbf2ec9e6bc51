"""User stories on a real etcd, kube-apiserver and Cluster API, and the rack over HTTP."""
