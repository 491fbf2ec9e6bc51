#!/bin/sh
# Takes out of the image what belongs to the machine that it was made on. The last script.
set -eu

# Empty, not absent: systemd writes a new one at the first boot.
: > /etc/machine-id
rm -f /var/lib/dbus/machine-id /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub /root/.bash_history
# Keys of whoever made the image; cloud-init lets in whom the instance names.
rm -f /root/.ssh/authorized_keys /home/*/.ssh/authorized_keys
# Debian's iscsid makes a name of its own at its first start when it finds this.
if [ -d /etc/iscsi ]; then
  echo 'GenerateName=yes' > /etc/iscsi/initiatorname.iscsi
  chmod 600 /etc/iscsi/initiatorname.iscsi
fi
cloud-init clean --logs --seed || cloud-init clean --logs
mkdir -p /var/lib/cloud/seed
rm -rf /tmp/* /var/tmp/* /var/log/journal/* /var/log/apt/* /var/log/*.log
sync
