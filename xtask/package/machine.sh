# Boots this root in QEMU with systemd as its first process: the units as they are, with all that confines them.
set -eu
export INITRD=No
apt-get -qq install --yes --no-install-recommends linux-image-cloud-amd64 systemd-sysv cpio qemu-system-x86
release=$(dpkg-query -W -f '${Depends}' linux-image-cloud-amd64 | sed 's/^linux-image-\([^ ,]*\).*/\1/')
useradd --groups ilk trial
# A program with a name of its own: its forks are counted, and no others.
cp /bin/dash /usr/local/bin/forker

cat >/usr/local/bin/trial <<'END'
set -eu
# The socket starts the agent, which loads the module first.
until ilk status; do sleep 1; done
echo 'entry:kernel_clone / comm == "forker" / { @forks = count() }' >/tmp/forks
ilk script /tmp/forks --for 20s >/tmp/counted &
while ilk status | grep 'nothing is spliced'; do sleep 1; done
ilk status
forker -c 'for i in 0 1 2 3 4 5 6 7 8 9; do /bin/true; done'
wait $!
cat /tmp/counted
grep -qw 10 /tmp/counted
END

cat >/etc/systemd/system/trial.service <<'END'
[Unit]
After=ilk.socket
[Service]
Type=oneshot
User=trial
ExecStart=/bin/sh /usr/local/bin/trial
ExecStart=+/bin/sh -c 'setpriv --reuid nobody --regid nogroup --clear-groups ilk status 2>&1 | grep "usermod -aG ilk"'
ExecStart=+/bin/systemctl is-active ilk.service
ExecStart=+/bin/systemctl stop ilk.socket ilk.service
ExecStart=+/bin/sh -c 'if dmesg | grep -E "BUG: |WARNING: |Oops"; then exit 1; fi'
ExecStart=/bin/echo The trial has passed.
ExecStopPost=+/bin/systemctl poweroff --force --force
StandardOutput=journal+console
StandardError=journal+console
[Install]
WantedBy=multi-user.target
END
systemctl enable trial.service

cd /
find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./packages -o -path ./boot -o -path ./root \
    -o -path ./opt -o -path ./usr/src -o -path ./usr/share -o -path ./usr/lib/gcc -o -path ./usr/libexec \
    -o -path ./var/cache -o -path ./var/lib/apt -o -path ./var/lib/dkms \
    -o \( -path './usr/lib/modules/*' -a ! -path "./usr/lib/modules/$release" -a ! -path "./usr/lib/modules/$release/*" \) \
    -o -name '*.a' \) -prune -o -print | cpio --quiet -o -H newc >/root/machine
for directory in proc sys dev root; do echo $directory; done | cpio --quiet -o -H newc >>/root/machine
# As in `ilk lab`: translated code of one thread at a time, and a clock that can be trusted.
timeout 900 qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
    -accel tcg,thread=single -cpu max,-cx16,-erms -m 4096 -serial file:/root/console \
    -kernel /boot/vmlinuz-$release -initrd /root/machine \
    -append 'console=ttyS0 rdinit=/lib/systemd/systemd systemd.unit=multi-user.target tsc=reliable no_timer_check' ||
    { tail -n 50 /root/console; exit 1; }
tail -n 40 /root/console
grep -q 'The trial has passed' /root/console
rm /root/machine
