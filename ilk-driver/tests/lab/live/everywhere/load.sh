# What runs while everything is counted: files and directories, pipes, processes and their priorities,
# memory and its return, procfs, sysfs, mounts. ROUNDS times; nothing of it stays.
load() {
  set -e
  mkdir -p /tmp/load; cd /tmp/load
  i=0; while [ $i -lt ROUNDS ]; do
    dd if=/dev/zero of=zeroes bs=4096 count=64 conv=fsync 2>/dev/null
    cp zeroes copy; cmp zeroes copy; ln -s copy link; ln copy hard; cat link | md5sum > sum
    gzip -c copy | gunzip -c | wc -c > count; tar c sum count | tar t > listed; rm zeroes copy link hard
    mkdir -p a/b/c; touch a/b/c/d; mv a/b/c/d a/e; chmod 600 a/e; chown 1:1 a/e; stat a/e > stat
    find a | sort | wc -l > count; rm -r a; mkfifo fifo; echo x > fifo & read x < fifo; wait; rm fifo
    fallocate -l 65536 f; rm f; mknod n c 1 3; echo x > n; rm n; truncate -s 1234 listed; truncate -s 5 listed; sync; df > df
    for f in maps smaps status stat statm io limits mountinfo sched wchan cgroup auxv numa_maps; do
      cat /proc/self/$f > proc 2>/dev/null || true
    done
    cat /proc/meminfo /proc/vmstat /proc/zoneinfo /proc/buddyinfo /proc/stat /proc/loadavg /proc/filesystems > proc
    cat /proc/pagetypeinfo /proc/slabinfo /proc/locks /proc/schedstat /proc/sys/vm/* > proc 2>/dev/null || true
    ls -laR /sys/kernel/mm /proc/self/fd /proc/self/task > listed 2>/dev/null || true
    mkdir -p m; mount -t tmpfs t m; echo x > m/x; mount -o remount,ro m; umount m
    mount -t ramfs r m; echo x > m/x; umount m; mount -t proc p m; cat m/uptime > /dev/null; umount m
    chroot / true; taskset 1 true; taskset 2 true; setsid true; unshare -m true
    sleep 0.05 & renice 3 $! > /dev/null 2>&1 || true; ionice -c 3 true; wait
    ( read x < /dev/zero & sleep 0.02; kill -STOP $!; kill -CONT $!; kill $!; wait ) 2>/dev/null || true
    dd if=/dev/zero of=/dev/null bs=8M count=2 2>/dev/null
    echo 3 > /proc/sys/vm/drop_caches; echo 1 > /proc/sys/vm/compact_memory
    i=$((i + 1))
  done
  cd /; rm -r /tmp/load
  set +e
}

# A calm of PAUSE seconds, in whose first half it says where every thread sleeps.
calm() {
  sleep PAUSE &
  sleep 1
  echo asleep
  cat /proc/[0-9]*/task/*/stack 2>/dev/null
  echo threads $(ls -d /proc/[0-9]*/task/* | wc -l)
  grep processes /proc/stat
  wait
  echo calm
}

calm
load
calm
sleep 3600
