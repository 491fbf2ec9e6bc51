#!/bin/sh
# What Kubernetes, its networks and its storage want of the kernel. Applied at each boot; nothing here runs now, because
# an image is also made where the kernel is somebody else's.
set -eu
here=$(dirname "$0")

install -D -m 644 "$here/files/modules.conf" /etc/modules-load.d/kubernetes.conf
install -D -m 644 "$here/files/sysctl.conf" /etc/sysctl.d/90-kubernetes.conf
install -D -m 644 "$here/files/journald.conf" /etc/systemd/journald.conf.d/kubernetes.conf

# The kubelet refuses to start beside swap.
if [ -f /etc/fstab ]; then
  sed -i -E '/^[^#]\S*\s+\S+\s+swap\s/d' /etc/fstab
fi
systemctl enable iscsid.service
