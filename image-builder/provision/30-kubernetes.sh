#!/bin/sh
# kubelet, kubeadm, kubectl and crictl, and the kubelet as a service that waits for kubeadm.
#
# From one of two places:
#   KUBERNETES_BINARIES       a directory that holds the four programs
#   KUBERNETES_PACKAGES_URL   a Debian repository of Kubernetes' own packages for one minor version (its key is
#                             <url>/Release.key); with KUBERNETES_VERSION, such as v1.36.3
set -eu
here=$(dirname "$0")
export DEBIAN_FRONTEND=noninteractive

if [ -n "${KUBERNETES_BINARIES:-}" ]; then
  for program in kubelet kubeadm kubectl crictl; do
    [ "$KUBERNETES_BINARIES" = /usr/bin ] || install -m 755 "$KUBERNETES_BINARIES/$program" "/usr/bin/$program"
  done
  # The units that the packages bring, word for word where it matters: Cluster API and kubeadm rely on these files.
  install -D -m 644 "$here/files/kubelet.service" /usr/lib/systemd/system/kubelet.service
  install -D -m 644 "$here/files/10-kubeadm.conf" /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf
else
  : "${KUBERNETES_PACKAGES_URL:?neither KUBERNETES_BINARIES nor KUBERNETES_PACKAGES_URL is set}"
  mkdir -p /etc/apt/keyrings
  curl -fsSL "$KUBERNETES_PACKAGES_URL/Release.key" | gpg --dearmor --yes -o /etc/apt/keyrings/kubernetes.gpg
  echo "deb [signed-by=/etc/apt/keyrings/kubernetes.gpg] $KUBERNETES_PACKAGES_URL /" > /etc/apt/sources.list.d/kubernetes.list
  apt-get update -q
  # A package's version is the release's number and a revision of the packaging.
  number=${KUBERNETES_VERSION:?}
  number=${number#v}
  apt-get install -y -q --no-install-recommends "kubelet=$number-*" "kubeadm=$number-*" "kubectl=$number-*" cri-tools
  # A machine is replaced, never upgraded in place.
  apt-mark hold kubelet kubeadm kubectl
  apt-get clean
  rm -rf /var/lib/apt/lists/*
fi
mkdir -p /etc/kubernetes/manifests
systemctl enable kubelet.service
kubeadm version -o short
