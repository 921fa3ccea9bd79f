#!/bin/busybox sh
# First process of the lab: mounts file systems, loads the module, and keeps an agent running
# at the virtio port. It evaluates these words of the kernel's command line:
#   gilk.module=off   boots without the module
#   ilk.NAME=VALUE    a parameter of the module
#   gilk.run=off      the agent runs no workload and no native function, as outside the lab
#   gilk.debugfs=off  debugfs is mounted nowhere
#   gilk.read         the agent reads the kernel before it serves, and says so
#   gilk.trial        powers off after the module is loaded: a trial boot
# The host reads the lines that begin with "gilk-lab:".

/bin/busybox mkdir -p /proc /sys /dev /tmp /run
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
# At Debian's higher level the agent's capability does not permit counting events.
echo 2 > /proc/sys/kernel/perf_event_paranoid
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
debugfs=on
run="--allow-run --allow-native --unknown-kernel"
first=
for word in $(cat /proc/cmdline); do
	case $word in
	gilk.module=off) module=off ;;
	gilk.run=off) run= ;;
	gilk.debugfs=off) debugfs=off ;;
	gilk.read) first=--read-first ;;
	gilk.trial) trial=yes ;;
	ilk.*=*) parameters="$parameters ${word#ilk.}" ;;
	esac
done

if [ $debugfs = on ]; then
	mount -t debugfs debugfs /sys/kernel/debug
fi
for driver in $(cat /lab/drivers); do
	insmod "/lab/$driver" || failed "insmod $driver"
done
if [ $module = on ]; then
	# Unquoted: each parameter is a word.
	insmod /lab/ilk.ko $parameters || failed "insmod ilk.ko"
fi
if [ $trial = yes ]; then
	echo "gilk-lab: trial passed"
	poweroff -f
fi

if [ -x /lab/run ]; then
	echo "gilk-lab: ready"
	/lab/run
	echo "gilk-lab: /lab/run ended with status $?"
	# A slow serial port has not sent the line yet, and the kernel's last one would lie within it.
	usleep 100000
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
while true; do
	# An emulated processor copies byte by byte where the C library uses rep movsb.
	GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=0x10000000 \
		/bin/ilk agent --port "/dev/$port" $run $first
	echo "gilk-lab: the agent ended with status $?"
	first=
	usleep 200000
done
