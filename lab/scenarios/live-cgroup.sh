set -eo pipefail
insmod /lab/tierscope.ko
insmod /lab/tierscope_flusher.ko
grep . /sys/devices/virtual/memory_tiering/memory_tier*/nodelist
tiers=$(ls -d /sys/devices/virtual/memory_tiering/memory_tier* | wc -l)
cgroup=/sys/fs/cgroup/target
echo +cpuset +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir $cgroup
echo +cpuset >$cgroup/cgroup.subtree_control
for node in 0 1; do
    mkdir $cgroup/on$node
    echo $node >$cgroup/on$node/cpuset.mems
done

# A process of the cgroup reads a file and ends. What it read stays, and is in no page table.
(
    echo 0 >$cgroup/on0/cgroup.procs
    dd if=/dev/zero of=/tmp/read bs=1M count=64
    cat /tmp/read >/dev/null
)

# touch NODE NAME: a toucher in the cgroup of that node, ready.
touch_on() {
    (
        echo 0 >$cgroup/on$1/cgroup.procs
        exec toucher "contiguous:space=${space_mib}MiB,hot=16MiB" --passes 0 --ready "/tmp/$2"
    ) >/dev/null &
    until [ -e "/tmp/$2" ]; do sleep 0.2; done
    echo "$! 20000" >/dev/tierscope_flusher
}

touch_on 0 first
first=$!
touch_on 1 second
second=$!

tierscope doctor --cgroup $cgroup >/tmp/doctor
grep 'page cache 6[4-9].* not visible to ACCESSED bits' /tmp/doctor

# Both are there at once, a third one joins, from which the keys go down to a mapping and up again.
# Then all end, and the screen says so.
{
    await regions /out/drawn.txt
    printf p
    await "toucher\[$first\]" /out/drawn.txt
    await "toucher\[$second\]" /out/drawn.txt
    touch_on 1 third
    third=$!
    # The screen redraws only the changed part of a line: the recording shows the change sooner.
    until tierscope report summary /out/recording | grep -q "toucher\[$third\]"; do sleep 0.5; done
    printf '\r'
    await '▸ toucher\[' /out/drawn.txt
    printf '\r'
    sleep 1
    printf '\033'
    sleep 1
    printf '\033'
    sleep 5
    kill "$first" "$second" "$third"
    await 'has ended' /out/drawn.txt
    printf q
} | on_terminal /out/drawn.txt --cgroup $cgroup --max-regions "$regions" -o /out/recording >/out/stderr.txt
cat /out/stderr.txt
grep -q 'showed [0-9]* windows' /out/stderr.txt
grep -q 'recorded [0-9]* windows' /out/stderr.txt
shows /out/drawn.txt 'cgroup /sys/fs/cgroup/target'

tierscope report summary /out/recording | tee /tmp/summary
grep -q '^page cache .*6[4-9].* MiB' /tmp/summary
# last METRIC SPACE: its last value in MiB.
tierscope export /out/recording --csv --table metrics -o - >/tmp/metrics
last() { awk -F, -v name="$1" -v space="$2" '$3 == name && $4 == space { mib = $5 / 1048576 } END { print int(mib) }' /tmp/metrics; }
# Space 2 is the memory that they share; the third one came after it.
for space in 0 1 3; do
    echo "space $space: resident $(last rss_bytes $space) MiB," \
        "node 0 $(last node0_bytes $space) MiB, node 1 $(last node1_bytes $space) MiB"
done
# Where cpuset let them take their memory is where they have it, and all of it is resident. Pages of
# the program and its libraries may lie anywhere. The third came after the first look at places, and on
# an emulated machine the next one is a long way off: a look may take 1/500 of a CPU.
[ "$(last node0_bytes 0)" -ge "$space_mib" ]
[ "$(last node1_bytes 1)" -ge "$space_mib" ]
[ "$(last node1_bytes 0)" -le 16 ]
[ "$(last node0_bytes 1)" -le 16 ]
for space in 0 1 3; do [ "$(last rss_bytes $space)" -ge "$space_mib" ]; done

# The file that was read counts as page cache, and is not hot: only what is mapped can be.
echo "page cache $(last page_cache_bytes "") MiB, page tables $(last page_table_bytes "") MiB"
cache=$(last page_cache_bytes "")
[ "$cache" -ge 64 ] && [ "$cache" -le 80 ]

# Replayed, the screen shows totals by tier, as many as this kernel makes of the nodes. The replay
# begins in the middle: the last windows may hold no process, and so no totals.
middle=$(sed -n 's/.*recorded [0-9]* windows (\([0-9]*\)[0-9.]* s).*/\1/p' /out/stderr.txt)
{ await "tier $((tiers - 1)) (nodes* [0-9, ]*) [0-9]" /out/replayed.txt; printf q; } |
    on_terminal /out/replayed.txt --replay /out/recording -t $((middle / 2))s >/dev/null || true
shows /out/replayed.txt 'tier 0 (nodes* [0-9, ]*) [0-9]'
shows /out/replayed.txt 'resident [0-9]'

# An empty cgroup, and a directory that is no cgroup.
mkdir /sys/fs/cgroup/empty
fails() {
    want=$1
    shift
    status=0
    "$@" 2>/tmp/error || status=$?
    cat /tmp/error
    [ "$status" = "$want" ]
}
fails 5 tierscope live --cgroup /sys/fs/cgroup/empty
grep -q 'no process is in it' /tmp/error
fails 5 tierscope live --cgroup /sys/fs/cgroup/none
[ -z "$(ls -d /tmp/tierscope-live-* 2>/dev/null)" ]
rmmod tierscope
