set -eo pipefail
insmod /lab/tierscope_device.ko
echo 0 >/proc/sys/kernel/numa_balancing
mkdir -p /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null || true
echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
tenant=/sys/fs/cgroup/neighbour
mkdir $tenant
limit() { cat $tenant/cpu.max; }
# The administrator's limit: of two CPUs, one and a half.
allowed="75000 50000"
echo "$allowed" >$tenant/cpu.max
# start_tenant NAME: a load in the cgroup, ready.
start_tenant() {
    toucher "$neighbour" --threads 2 --truth "/tmp/$1" --passes 0 --ready "/tmp/$1-ready" >/dev/null &
    toucher=$!
    echo $toucher >$tenant/cgroup.procs
    until [ -s "/tmp/$1-ready" ]; do kill -0 $toucher; sleep 0.1; done
}
start_qos() {
    tierscope qos --tenant "neighbour=$cap" --by nemo >>/out/qos.txt 2>&1 &
    qos=$!
}
# Waits until the limit is ours: below the administrator's, with the same period.
await_limit() {
    until [ "$(limit)" != "$1" ]; do kill -0 $qos; sleep 0.1; done
    set -- $(limit)
    echo "limited to $1 of $2"
    [ "$1" -lt 75000 ] && [ "$2" = 50000 ]
}

start_tenant first
# Below its cap it has what the administrator allows, also if qos itself may run on one CPU only.
taskset 1 tierscope qos --tenant neighbour=1TiB --by nemo --dry-run --duration 1500ms --json >/out/dry.jsonl
grep -q '"bytes":[1-9]' /out/dry.jsonl
grep -q '"cpus":1.5' /out/dry.jsonl
[ "$(limit)" = "$allowed" ]

start_qos
await_limit "$allowed"
# The service is restarted: the same path, another cgroup without a limit.
kill $toucher
wait $toucher || true
until rmdir $tenant; do sleep 0.1; done
sleep 0.2
mkdir $tenant
echo "$allowed" >$tenant/cpu.max
start_tenant second
await_limit "$allowed"
kill -0 $qos

# A kill leaves the limit, and it is restored on request.
kill -KILL $qos
wait $qos || true
left=$(limit)
[ "$left" != "$allowed" ]
tierscope qos --restore
[ "$(limit)" = "$allowed" ]

# Or by the next start; signals that follow the first change nothing.
start_qos
await_limit "$allowed"
kill -KILL $qos
wait $qos || true
: >/out/qos.txt
start_qos
until grep -q 'CPUs$' /out/qos.txt; do kill -0 $qos; sleep 0.1; done
for _ in 1 2 3 4 5; do kill -TERM $qos 2>/dev/null || break; done
wait $qos
tail -n 1 /out/qos.txt | tee /out/last.txt
grep -q 'limits are as before' /out/last.txt
[ "$(limit)" = "$allowed" ]
[ -z "$(ls /run/tierscope/qos)" ]
kill $toucher
wait $toucher || true
rmmod tierscope_device
