set -eo pipefail
mkdir -p /etc /run
echo root:x:0:0::/:/bin/sh >/etc/passwd # memcached needs an entry for the user it runs as
echo 4194304 >/proc/sys/net/core/wmem_default
insmod /lab/tierscope.ko
echo 0 >/proc/sys/kernel/numa_balancing
node=/sys/devices/system/node/node1
cat >/tmp/tier.toml <<'T'
[tiers]
nodes = [[0], [1]]
# Half of the data.
capacity = ["80MiB"]
[limits]
bytes-per-second = "1GiB"
keep-free = "16MiB"
ping-pong = "0s"
stalled = 1.0
T

server=/sys/fs/cgroup/server
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
mkdir $server
# fill_node: moves the server's memory to node 1, where it need not stay.
fill_node() {
    echo 1 >$server/cpuset.mems
    echo 0-1 >$server/cpuset.mems
}
fill_node
(
    echo 0 >$server/cgroup.procs
    exec memcached -u root -s /tmp/server -m 200 -t 2 -o no_lru_crawler,no_lru_maintainer 2>/out/server.log
) &
until [ -S /tmp/server ]; do sleep 0.1; done
data="--keys $keys --value-bytes 65000 --hot-keys 1"
to="--server /tmp/server --dialect memcached"
redis-load fill $data $to
fill_node
redis-load load $data $to --seconds 60 >/out/load.json &
load=$!

# start NAME COMMAND...: a program that must go on until it is interrupted.
start() {
    name=$1
    shift
    "$@" >/out/$name.txt 2>&1 &
    eval "${name}_pid=$!"
}
start recorder tierscope record --share-bits --cgroup $server --cpu 20% -o /tmp/recorder
start tier tierscope tier --policy amp-random:interval=1s,batch=2048 --config /tmp/tier.toml --cgroup $server --sampling 100ms --window 400ms --cpu 50% --share-bits -o /tmp/tier
start serve tierscope serve --share-bits --cgroup $server --cpu 20% -o /tmp/serve --listen unix:/tmp/socket
all="recorder tier serve"
pid_of() { eval "echo \$${1}_pid"; }
ended=0 reports=0 wrong=0
# alive WHEN: whether all programs go on.
alive() {
    for each in $all; do
        kill -0 "$(pid_of "$each")" 2>/dev/null || { echo "$1: $each has ended: $(tail -n 3 /out/$each.txt)"; ended=$((ended + 1)); }
    done
}
# KiB on node 1 that are in use.
used() { sed -n 's/^Node 1 MemUsed: *\([0-9]*\) kB/\1/p' $node/meminfo 2>/dev/null; }
# switch STATE: sets the state of all blocks of node 1; some may need more than one try.
switch() {
    for block in $node/memory[0-9]*; do
        tries=0
        until echo "$1" >"$block/state" 2>/dev/null || [ "$(cat "$block/state")" = "${1%_*}" ]; do
            tries=$((tries + 1))
            [ $tries -lt 50 ] || { echo "$block stays $(cat "$block/state")"; return 1; }
            sleep 0.1
        done
    done
}
echo "node 1: $(used) KiB used, in $(ls -d $node/memory[0-9]* | wc -l) blocks"
n=0
while [ $n -lt "$cpus" ]; do
    n=$((n + 1))
    echo 0 >/sys/devices/system/cpu/cpu1/online
    sleep 1
    echo 1 >/sys/devices/system/cpu/cpu1/online
    sleep 1
done
alive "CPU 1 went and came"
switch offline
sleep 3
alive "node 1 went"
switch online_movable
fill_node
sleep 2
alive "node 1 came"
echo "node 1: $(used) KiB used again"
switch offline
removed=0
for slot in /sys/bus/acpi/devices/PNP0C80:*; do echo 1 >$slot/eject 2>/dev/null || true; done
sleep 1
[ -e $node/meminfo ] || removed=1
sleep 3
alive "node 1 was removed"
for each in $all; do
    code=0
    kill -INT "$(pid_of $each)"
    wait "$(pid_of $each)" || code=$?
    [ $code = 0 ] || { echo "$each: exit $code: $(tail -n 3 /out/$each.txt)"; ended=$((ended + 1)); }
    tierscope report summary /tmp/$each >/out/$each-summary.txt || reports=$((reports + 1))
done
kill $load 2>/dev/null || true
wait $load || true
# The recording has the tiers that were configured.
grep -q 'tier 0 (node 0), tier 1 (node 1)' /out/tier-summary.txt || reports=$((reports + 1))
redis-load check $data $to | tee /out/check.json || wrong=1
printf '{"cpus":%d,"removed":%d,"ended":%d,"reports_failed":%d,"values_wrong":%d}\n' \
    "$cpus" $removed $ended $reports $wrong | tee /out/hotplug.json
[ "$removed$ended$reports$wrong" = 1000 ]
