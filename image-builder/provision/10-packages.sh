#!/bin/sh
# The distribution's packages: container runtime, network tools, cloud-init, and what Longhorn needs of a machine.
# Debian 12 and newer, Ubuntu 22.04 and newer.
set -eu
export DEBIAN_FRONTEND=noninteractive

apt-get update -q
# python3-cffi-backend: cloud-init needs it and Debian only recommends it. socat, conntrack, ethtool: kubeadm asks for them.
# dosfstools, open-iscsi, nfs-common: a look at the FAT volume of the user data; Longhorn's volumes.
apt-get install -y -q --no-install-recommends \
  systemd systemd-sysv dbus udev kmod procps sudo ca-certificates curl gpg \
  iproute2 iputils-ping iptables nftables conntrack ethtool socat ipset \
  containerd runc containernetworking-plugins \
  cloud-init python3-cffi-backend dosfstools \
  open-iscsi nfs-common util-linux

# Where every container runtime and network add-on looks; the package has its own place.
mkdir -p /opt/cni
if [ ! -e /opt/cni/bin ]; then
  mv /usr/lib/cni /opt/cni/bin
  ln -s /opt/cni/bin /usr/lib/cni
fi

apt-get clean
rm -rf /var/lib/apt/lists/*
