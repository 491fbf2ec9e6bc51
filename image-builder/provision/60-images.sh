#!/bin/sh
# Container images into containerd's store, so that a machine boots without a registry. They are not unpacked: a machine
# unpacks just those that it runs.
#
#   CONTAINER_IMAGES   a directory of image archives; or "pull" for those that kubeadm names, from their registry;
#                      or nothing
#   KUBERNETES_VERSION with "pull"
set -eu

case ${CONTAINER_IMAGES:-} in
"") exit 0 ;;
esac
started=
if ! ctr version > /dev/null 2>&1; then
  containerd --log-level warn &
  started=$!
  for _ in $(seq 100); do
    if ctr version > /dev/null 2>&1; then break; fi
    sleep 0.1
  done
fi
if [ "$CONTAINER_IMAGES" = pull ]; then
  kubeadm config images pull --kubernetes-version "${KUBERNETES_VERSION:?}" --cri-socket unix:///run/containerd/containerd.sock
else
  for archive in "$CONTAINER_IMAGES"/*.tar; do
    ctr --namespace k8s.io images import --no-unpack "$archive" > /dev/null
  done
fi
ctr --namespace k8s.io images list --quiet | grep -v '^sha256:'
if [ -n "$started" ]; then
  kill "$started"
  wait "$started" || :
  rm -rf /var/lib/containerd/tmpmounts
fi
