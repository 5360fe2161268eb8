set -eo pipefail
insmod /lab/tierscope_device.ko
echo 0 >/proc/sys/kernel/numa_balancing
mkdir -p /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null || true
echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/victim /sys/fs/cgroup/neighbour
# The neighbour has a CPU of its own: what it takes from Redis is bandwidth.
taskset 1 redis-server --port 0 --unixsocket /tmp/redis --save "" --appendonly no --io-threads 1 --daemonize no --logfile /out/redis.log &
redis=$!
echo $redis >/sys/fs/cgroup/victim/cgroup.procs
until [ -S /tmp/redis ]; do sleep 0.1; done
data="--keys $keys --value-bytes $value_bytes --hot-keys 0.1 --server /tmp/redis"
redis-load fill $data
load() {
    taskset 1 redis-load load $data --hot-operations 0.5 --command bitcount --every 1 --seconds "$seconds" >"/out/$1.json"
    sed 's/,"intervals".*//' "/out/$1.json"
}
# Lines that left a CPU past its caches.
stores() { machine-probe count non_temporal | sed 's/[^0-9]//g'; }

load alone
taskset 2 toucher "$neighbour" --truth /tmp/truth --passes 0 --ready /tmp/ready >/out/toucher.json &
toucher=$!
echo $toucher >/sys/fs/cgroup/neighbour/cgroup.procs
until [ -s /tmp/ready ]; do
    kill -0 $toucher || { wait $toucher; exit 1; }
    sleep 0.2
done
before=$(stores)
load free
echo "$before $(stores) $seconds" >/out/stores-free.txt
taskset 2 tierscope qos --tenant "neighbour=$cap" --by nemo --json >/out/qos.jsonl 2>/out/qos.txt &
qos=$!
# It shares the CPU of the capped tenant, which has time then. The cap is in force from the second second on.
sleep 2
before=$(stores)
load held
echo "$before $(stores) $seconds" >/out/stores-held.txt
cat /sys/fs/cgroup/neighbour/cpu.max >/out/cpu-max-held.txt
kill -TERM $qos
wait $qos || { cat /out/qos.txt; exit 1; }
cat /sys/fs/cgroup/neighbour/cpu.max | tee /out/cpu-max-after.txt
tail -n 1 /out/qos.jsonl
kill $toucher $redis
wait $toucher $redis || true
grep -q '^max ' /out/cpu-max-after.txt
rmmod tierscope_device
