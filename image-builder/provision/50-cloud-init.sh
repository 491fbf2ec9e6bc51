#!/bin/sh
# cloud-init reads what the rack gives an instance: a small FAT12 volume labelled cidata with user data and metadata
# (the NoCloud data source). Nothing else is looked for, so a boot never waits for another cloud's metadata service.
set -eu
here=$(dirname "$0")

install -D -m 644 "$here/files/cloud.cfg" /etc/cloud/cloud.cfg.d/90-oxide.cfg
mkdir -p /var/lib/cloud/seed
# A source that somebody else's image names would win over ours.
rm -f /etc/cloud/cloud.cfg.d/90_dpkg.cfg
