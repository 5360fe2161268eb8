set -eo pipefail
insmod /lab/tierscope.ko
admin=/sys/kernel/mm/damon/admin/kdamonds
# names CHECK VERDICT: the check of that id has that verdict.
names() {
    tierscope doctor --json >/tmp/printed || true
    verdict=$(sed -n "/\"id\": \"$1\"/,/}/s/.*\"verdict\": \"\(.*\)\".*/\1/p" /tmp/printed)
    [ "$verdict" = "$2" ] || { cat /tmp/printed; echo "$1 is $verdict instead of $2"; exit 1; }
    echo "$1: $2"
}
sleep 1000 &
target=$!

for each in stat reclaim lru_sort; do
    switch=/sys/module/damon_$each/parameters/enabled
    [ -e $switch ] || continue
    echo N >$switch
done
echo 0 >/sys/kernel/mm/lru_gen/enabled
for each in damon-stat damon-reclaim damon-lru-sort kdamonds mglru-aging idle-tracking sessions; do
    names $each present
done

for each in stat reclaim lru_sort; do
    switch=/sys/module/damon_$each/parameters/enabled
    [ -e $switch ] || continue
    echo Y >$switch
    names damon-$(echo $each | tr _ -) limited
    # A recording that ran with it says so.
    tierscope record -p $target --instrument rates --duration 1s -o /tmp/with-$each 2>/dev/null
    tierscope report summary /tmp/with-$each --json | grep -q "\"damon-$(echo $each | tr _ -)\""
    echo N >$switch
    names damon-$(echo $each | tr _ -) present
done

if [ -e $admin ]; then
    echo 1 >$admin/nr_kdamonds
    echo 1 >$admin/0/contexts/nr_contexts
    echo vaddr >$admin/0/contexts/0/operations
    echo 1 >$admin/0/contexts/0/targets/nr_targets
    echo $target >$admin/0/contexts/0/targets/0/pid_target
    echo on >$admin/0/state
    names kdamonds limited
    echo off >$admin/0/state
    echo 0 >$admin/nr_kdamonds
    names kdamonds present
fi

echo 7 >/sys/kernel/mm/lru_gen/enabled
names mglru-aging limited
echo 0 >/sys/kernel/mm/lru_gen/enabled

if [ -e /sys/kernel/mm/page_idle/bitmap ]; then
    sleep 1000 </sys/kernel/mm/page_idle/bitmap &
    user=$!
    names idle-tracking limited
    kill $user
fi

tierscope record -p $target --instrument rates -o /tmp/watched 2>/dev/null &
watcher=$!
while [ ! -e /tmp/watched/regions.arrows ]; do sleep 0.2; done
names sessions limited
kill $watcher
wait $watcher || true
names sessions present

[ "$seconds" = 0 ] && exit 0
for stat in N Y; do
    echo $stat >/sys/module/damon_stat/parameters/enabled
    for busy in 0 256; do
        echo "DAMON_STAT $stat, $busy MiB busy"
        bits-kept --mib 256 --busy-mib $busy --seconds $seconds | tee -a /out/bits.jsonl
    done
done
