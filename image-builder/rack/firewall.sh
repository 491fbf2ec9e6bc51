#!/bin/sh
# firewall.sh DIRECTORY: a root file system with nothing but the firewall programs, a shell, and the libraries of both,
# out of the distribution's packages.
set -eu
root=$1
export DEBIAN_FRONTEND=noninteractive

apt-get update -q
# Against an empty list of what is installed, apt names everything that the programs need.
mkdir -p /tmp/packages "$root"
: > /tmp/installed
cd /tmp/packages
apt-get install -y -q --no-install-recommends --download-only \
  -o Dir::State::status=/tmp/installed -o Dir::Cache::archives=/tmp/packages -o APT::Install-Suggests=false \
  iptables nftables conntrack ipset kmod dash coreutils grep sed
# As on the systems that the packages are for: one directory for programs and libraries under /usr, links beside it.
for directory in bin sbin lib lib64; do
  mkdir -p "$root/usr/$directory"
  ln -s "usr/$directory" "$root/$directory"
done
mkdir -p "$root/etc" "$root/run" "$root/tmp" "$root/var/lib"
ln -s ../run "$root/var/run"
for package in *.deb; do
  case $package in
  debconf_* | perl-base_* | gcc-*-base_* | init-system-helpers_*) continue ;;
  esac
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink \
    --exclude=./usr/share --exclude='./usr/lib/*/gconv' --exclude=./usr/lib/systemd --exclude=./etc/init.d
done
# Left to the packages' scripts otherwise.
ln -sf dash "$root/usr/bin/sh"
for program in iptables ip6tables; do
  for suffix in "" -save -restore; do
    ln -sf xtables-nft-multi "$root/usr/sbin/$program$suffix"
  done
done
rm -rf /tmp/packages /var/lib/apt/lists/*
chroot "$root" /usr/sbin/iptables --version
chroot "$root" /usr/sbin/nft --version
chroot "$root" /usr/sbin/conntrack --version
