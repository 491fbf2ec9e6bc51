#!/bin/sh
# What the image needs where the instance is a container that shares its host's kernel, memory and disks.
set -eu
here=$(dirname "$0")

install -m 755 "$here/rack-init" /usr/local/sbin/rack-init
install -m 755 "$here/kubeadm" /usr/local/sbin/kubeadm
install -m 644 "$here/kubelet.default" /etc/default/kubelet
install -m 644 "$here/cloud.cfg" /etc/cloud/cloud.cfg.d/99-rack.cfg
install -D -m 644 "$here/journald.conf" /etc/systemd/journald.conf.d/rack.conf
# Without the capability to raise it, a container that asks for a better place before the memory killer would not start.
sed -i 's/^  tolerate_missing_hugetlb_controller = true$/&\n  restrict_oom_score_adj = true/' /etc/containerd/config.toml
grep -q restrict_oom_score_adj /etc/containerd/config.toml
# The kernel's settings and modules are the host's, and so are its devices and the console.
rm -f /etc/modules-load.d/kubernetes.conf
printf 'net.ipv4.ip_forward = 1\nnet.ipv6.conf.all.forwarding = 1\n' > /etc/sysctl.d/90-kubernetes.conf
systemctl disable iscsid.service
# Unknown names may be masked too: what one distribution has, another has not.
systemctl mask \
  systemd-modules-load.service systemd-firstboot.service systemd-remount-fs.service systemd-logind.service \
  systemd-timesyncd.service systemd-networkd.service systemd-networkd-wait-online.service systemd-resolved.service \
  systemd-udevd.service systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-udev-trigger.service \
  ifupdown-wait-online.service console-getty.service getty@tty1.service getty.target getty-static.service \
  dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \
  sys-fs-fuse-connections.mount rpc-pipefs.mount run-rpc_pipefs.mount proc-fs-nfsd.mount rpcbind.service rpcbind.socket \
  open-iscsi.service iscsid.socket nfs-client.target \
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer nftables.service
