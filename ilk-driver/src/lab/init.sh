#!/bin/busybox sh
# First process of the lab: makes the kernel usable, loads the module, and keeps an agent
# running on the virtio port. Words of the kernel's command line that it knows:
#   gilk.module=off   boots without the module
#   ilk.NAME=VALUE    a parameter of the module
#   gilk.run=off      the agent runs no workload, as on a machine of one's own
#   gilk.trial        only shows that this far everything works, and switches off
# What it prints with "gilk-lab:" in front is read by the host.

/bin/busybox mkdir -p /proc /sys /dev /tmp /run
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
# With more than this, as Debian has it, the agent's capability is not enough to have events counted.
echo 2 > /proc/sys/kernel/perf_event_paranoid
/bin/busybox mount -t debugfs debugfs /sys/kernel/debug
/bin/busybox mount -t tmpfs tmpfs /tmp
/bin/busybox mount -t securityfs securityfs /sys/kernel/security
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
hostname gilk-lab

failed() {
	echo "gilk-lab: failed: $1"
	sleep 1
	poweroff -f
}

module=on
parameters=
trial=no
run=--allow-run
for word in $(cat /proc/cmdline); do
	case $word in
	gilk.module=off) module=off ;;
	gilk.run=off) run= ;;
	gilk.trial) trial=yes ;;
	ilk.*=*) parameters="$parameters ${word#ilk.}" ;;
	esac
done

for driver in $(cat /lab/drivers); do
	insmod "/lab/$driver" || failed "insmod $driver"
done
if [ $module = on ]; then
	# Each is a word of its own.
	insmod /lab/ilk.ko $parameters || failed "insmod ilk.ko"
fi
if [ $trial = yes ]; then
	echo "gilk-lab: trial passed"
	poweroff -f
fi

port=
tries=0
while [ -z "$port" ]; do
	for name in /sys/class/virtio-ports/*/name; do
		[ "$(cat "$name" 2>/dev/null)" = gilk.agent ] || continue
		port=$(basename "$(dirname "$name")")
		[ -c "/dev/$port" ] || port=
	done
	tries=$((tries + 1))
	[ $tries -lt 100 ] || failed "no virtio port named gilk.agent"
	[ -n "$port" ] || usleep 50000
done

echo "gilk-lab: ready"
if [ -x /lab/run ]; then
	/lab/run
	echo "gilk-lab: /lab/run ended with status $?"
	poweroff -f
fi
while true; do
	# An emulated processor copies byte by byte where the C library thinks that is fast.
	GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=0x10000000 \
		/bin/ilk agent --port "/dev/$port" $run
	echo "gilk-lab: the agent ended with status $?"
	usleep 200000
done
