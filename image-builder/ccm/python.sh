#!/bin/sh
# python.sh DIRECTORY: a root file system with nothing but Python, the libraries that it needs and the public certificate
# authorities, out of the distribution's packages: what the image of the cloud controller manager stands on.
set -eu
root=$1
export DEBIAN_FRONTEND=noninteractive

apt-get update -q
# Against an empty list of what is installed, apt names everything that Python needs.
mkdir -p /tmp/packages "$root"
: > /tmp/installed
cd /tmp/packages
apt-get install -y -q --no-install-recommends --download-only \
  -o Dir::State::status=/tmp/installed -o Dir::Cache::archives=/tmp/packages -o APT::Install-Suggests=false \
  python3 ca-certificates
# As on the systems that the packages are for: one directory for programs and libraries under /usr, links beside it.
for directory in bin sbin lib lib64; do
  mkdir -p "$root/usr/$directory"
  ln -s "usr/$directory" "$root/$directory"
done
mkdir -p "$root/etc/ssl/certs" "$root/run" "$root/tmp" "$root/usr/lib/ssl" "$root/var/tmp"
chmod 1777 "$root/tmp" "$root/var/tmp"
ln -s ../run "$root/var/run"
for package in *.deb; do
  case $package in
  ca-certificates_*)
    dpkg-deb --fsys-tarfile "$package" | tar -x -C /tmp ./usr/share/ca-certificates
    continue ;;
  # What these have is for people, or for the packages' scripts, which do not run here.
  dpkg_* | tar_* | debconf_* | perl-base_* | gcc-*-base_* | init-system-helpers_* | openssl_* | readline-common_* | \
    media-types_* | tzdata_*) continue ;;
  esac
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink \
    --exclude=./usr/share --exclude='./usr/lib/*/gconv' --exclude=./usr/lib/systemd --exclude=./etc/init.d \
    --exclude='./usr/lib/python3*/idlelib' --exclude='./usr/lib/python3*/lib2to3' --exclude='./usr/lib/python3*/pydoc_data'
done
# Left to the packages' scripts otherwise.
cat /tmp/usr/share/ca-certificates/mozilla/*.crt > "$root/etc/ssl/certs/ca-certificates.crt"
ln -s /etc/ssl/certs/ca-certificates.crt "$root/usr/lib/ssl/cert.pem"
ln -s /etc/ssl/certs "$root/usr/lib/ssl/certs"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
# Nobody may write it where it runs, so it would be compiled at each start. By their content: times do not stay as they are.
chroot "$root" /usr/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))' > /tmp/library
chroot "$root" /usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash "$(cat /tmp/library)"
rm -rf /tmp/packages /tmp/installed /tmp/usr /tmp/library /var/lib/apt/lists/*
chroot "$root" /usr/bin/python3 -c 'import asyncio, ctypes, json, ssl; assert ssl.create_default_context().get_ca_certs()'
