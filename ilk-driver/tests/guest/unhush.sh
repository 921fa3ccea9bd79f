#!/bin/busybox sh
# Takes the live patch out again: it must be off, and no thread on its way, before it can be unloaded.
home=/sys/kernel/livepatch/hush
i=0
while [ "$(cat $home/transition)" = 1 ] && [ $i -lt 300 ]; do
	i=$((i + 1))
	usleep 100000
done
echo 0 > $home/enabled || exit 1
while [ -d $home ] && [ $i -lt 600 ]; do
	i=$((i + 1))
	usleep 100000
done
i=0
until rmmod hush 2>/dev/null; do
	i=$((i + 1))
	[ $i -lt 100 ] || exit 1
	usleep 100000
done
