set -eo pipefail
insmod /lab/tierscope.ko
# A second user of ACCESSED bits would make the comparison void. TLBs are flushed by the instrument alone, as in real use.
echo 0 >/proc/sys/kernel/numa_balancing 2>/dev/null || true
echo 0 >/sys/kernel/mm/lru_gen/enabled
cgroup=/sys/fs/cgroup/target
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir $cgroup
of="--cgroup $cgroup"
mkdir /tmp/truth

# target COMMAND...: starts it in the target's cgroup.
target() { (echo 0 >$cgroup/cgroup.procs; exec "$@") & }
# shape NAME SETTING...: starts a process of the target; it is ready when its truth appears.
shape() {
    name=$1
    shift
    target shape /tmp/truth/$name "$@"
}
ready() {
    for each in "$@"; do
        until [ -e /tmp/truth/$each ]; do kill -0 $!; sleep 0.2; done
    done
}
# figure NAME VALUE: a figure that the recording does not have.
figure() { echo "$1 $2" | tee -a /out/figures.txt; }
# touch WORKLOAD: a toucher, whose truth is a directory.
touch_memory() {
    target toucher "$1" --passes 0 --seed "$seed" --truth /tmp/toucher --ready /tmp/ready >/out/toucher.json
    until [ -s /tmp/ready ]; do kill -0 $!; sleep 0.2; done
}

case $case in
# No flush of the TLB but the instrument's own.
alone) touch_memory "contiguous:space=1GiB,hot=64MiB,at=512MiB" ;;
sparse-16k) touch_memory "striped:space=1GiB,range=16KiB,apart=2MiB" ;;
sparse-4k) touch_memory "striped:space=1GiB,range=4KiB,apart=256KiB" ;;
# A fifth of a second of work, four of rest.
nap) shape nap used=1024 hot=64 busy=200 pause=800; ready nap ;;
read)
    # Of a file of 256 MiB in the page cache, 64 MiB are read again and again: they are in no page table.
    shape read used=64 file=256 reads=64
    ready read
    tierscope doctor --cgroup $cgroup >/out/doctor.txt 2>&1
    figure doctor "$(grep -c 'page cache .*not visible to ACCESSED bits' /out/doctor.txt)"
    ;;
threads) shape threads used=256 hot=32 threads=2000; ready threads ;;
churn) shape churn used=256 hot=32 churn=500; ready churn ;;
# Growth begins with the recording.
grow) shape grow used=64 grow=100 limit=1200; ready grow ;;
kinds)
    echo 8 >/proc/sys/vm/nr_hugepages
    echo 100000 >/sys/kernel/mm/ksm/pages_to_scan
    echo 1 >/sys/kernel/mm/ksm/run
    shape kinds kinds=1
    ready kinds
    until [ "$(cat /sys/kernel/mm/ksm/pages_sharing)" -ge 1000 ]; do sleep 0.5; done
    figure ksm_pages "$(cat /sys/kernel/mm/ksm/pages_sharing)"
    ;;
pool)
    # Two processes share a file of huge pages.
    echo 128 >/proc/sys/vm/nr_hugepages
    mkdir /pool
    mount -t hugetlbfs none /pool
    : >/pool/object
    truncate -s 256M /pool/object
    target sharer /pool/object 64 32 1 2 /tmp/truth/
    ready 1 2
    tierscope doctor --cgroup $cgroup >/out/doctor.txt 2>&1 || true
    figure doctor "$(grep -c '256 MiB in shared mappings' /out/doctor.txt)"
    ;;
swapped)
    echo 512M >/sys/block/zram0/disksize
    mkswap /dev/zram0
    swapon /dev/zram0
    shape swapped used=400 hot=32 swapped=184
    ready swapped
    ;;
reserved) shape reserved used=300 hot=31 reserved=64; ready reserved ;;
moved)
    # In a pid namespace of its own; in a cgroup within the target's; started by exec during the recording.
    target unshare --fork --pid shape /tmp/truth/namespace used=64 hot=16
    mkdir $cgroup/nested
    (echo 0 >$cgroup/nested/cgroup.procs; exec shape /tmp/truth/nested used=64 hot=16) &
    ready namespace nested
    target sh -c 'sleep 5; exec shape /tmp/truth/exec used=64 hot=16'
    ;;
several)
    shape first used=128 hot=16
    first=$!
    ready first
    shape second used=128 hot=16
    ready second
    of="-p $first -p $!"
    ;;
children)
    shape children used=128 hot=16
    ready children
    target sh -c 'while :; do usleep 50000; done'
    ;;
esac

tierscope record $of --instrument "$instrument" --duration "${seconds}s" --cpu "$cpu" --seed "$seed" -o /tmp/recording 2>/out/record.txt
tail -n 1 /out/record.txt
cp -r /tmp/recording /out/
cat /tmp/truth/* >/out/truth.txt 2>/dev/null || true
for pid in $(cat $cgroup/cgroup.procs $cgroup/*/cgroup.procs); do
    echo "$pid $(cat /proc/$pid/comm) $(awk '/^(Rss|Swap|Private_Hugetlb|Shared_Hugetlb):/ { printf "%s %s ", $1, $2 }' /proc/$pid/smaps_rollup)"
done >/out/memory.txt 2>/dev/null || true
head -n 5 /out/memory.txt
grep MemTotal /proc/meminfo | tee -a /out/memory.txt
tierscope report summary /out/recording | tee /out/summary.txt
tierscope report summary /out/recording --json >/out/summary.json
# A toucher says what it did when it ends.
if [ -e /tmp/ready ]; then
    kill $!
    until grep -q '^{"end"' /tmp/toucher/truth.jsonl; do sleep 0.2; done
    cp -r /tmp/toucher /out/
fi
