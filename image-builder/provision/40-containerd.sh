#!/bin/sh
# containerd as the kubelet needs it: cgroups by systemd, and the pause image that is in the store already.
#
#   PAUSE_IMAGE          the image of the container that holds a Pod's namespaces; without it, the one that kubeadm names
#   KUBERNETES_VERSION   for that
set -eu
here=$(dirname "$0")

if [ -z "${PAUSE_IMAGE:-}" ]; then
  PAUSE_IMAGE=$(kubeadm config images list --kubernetes-version "${KUBERNETES_VERSION:?}" | grep /pause:)
fi

mkdir -p /etc/containerd /etc/cni/net.d
case $(containerd --version | awk '{ sub(/^v/, "", $3); print $3 }') in
1.*) plugin=io.containerd.grpc.v1.cri; configuration=containerd-1.toml ;;
*) plugin=io.containerd.cri.v1.runtime; configuration=containerd-2.toml ;;
esac
sed -e "s#@PAUSE_IMAGE@#$PAUSE_IMAGE#" "$here/files/$configuration" > /etc/containerd/config.toml
printf 'runtime-endpoint: unix:///run/containerd/containerd.sock\nimage-endpoint: unix:///run/containerd/containerd.sock\n' > /etc/crictl.yaml
systemctl enable containerd.service
echo "containerd: configured $plugin"
