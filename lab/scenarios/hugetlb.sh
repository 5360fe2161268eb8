set -eo pipefail
insmod /lab/tierscope.ko
echo 128 >/proc/sys/vm/nr_hugepages
mkdir /pool
mount -t hugetlbfs none /pool
: >/pool/object
truncate -s $((object_mib << 20)) /pool/object
sharer /pool/object 0 "$hot_mib" "$pause_ms" 1 /tmp/ready &
sharer=$!
until [ -e /tmp/ready1 ]; do sleep 0.2; done
tierscope doctor -p $sharer 2>&1 | tee /out/doctor.txt
tierscope record -p $sharer --duration "${seconds}s" --cpu "$cpu" -o /out/recording 2>/out/record.txt
tail -n 1 /out/record.txt
tierscope report regions /out/recording | tee /out/regions.txt
tierscope report summary /out/recording | tee /out/summary.txt
tierscope report summary /out/recording --json >/out/summary.json
kill $sharer

# median KEY: the median of a figure of the whole target, in KiB.
median() {
    awk -v key="\"$1\":" '
        /^  "/ && $1 == key { here = 1 }
        here && $1 == "\"p50\":" { print int($2 / 1024); exit }' /out/summary.json
}
hot=$(median hot_bytes)
refused=$(median unknown_refused_bytes)
echo "hot $hot KiB, refused $refused KiB"
[ "$refused" = 0 ]
# Within 1.2 of the truth; the process's own memory is 400 KiB.
cold=$(median cold_bytes)
echo "cold $cold KiB"
[ "$cold" -le $(((object_mib - hot_mib + 3) * 1024)) ]
[ "$hot" -ge $((hot_mib * 1024 * 10 / 12)) ]
[ "$hot" -le $(((hot_mib + 1) * 1024 * 12 / 10)) ]

# Two processes map the object: its pages are resident once.
cgroup=/sys/fs/cgroup/target
mkdir $cgroup
(
    echo 0 >$cgroup/cgroup.procs
    exec sharer /pool/object 0 "$hot_mib" "$pause_ms" 2 /tmp/two
) &
until [ -e /tmp/two1 ] && [ -e /tmp/two2 ]; do sleep 0.2; done
tierscope record --cgroup $cgroup --duration 20s --cpu "$cpu" -o /out/two 2>/out/two.txt
tierscope report wss /out/two --json >/out/two.json
for pid in $(cat $cgroup/cgroup.procs); do kill "$pid"; done
most=$(awk '$1 == "\"resident_bytes\":" && $2 > most { most = $2 } END { print int(most / 1024) }' /out/two.json)
echo "resident at most $most KiB"
[ "$most" -ge $((object_mib * 1024)) ]
[ "$most" -le $(((object_mib + 8) * 1024)) ]

rm /pool/object
: >/pool/churn
truncate -s 1G /pool/churn
POOL_FILE=/pool/churn prober --probes "$probes" --seed "$seed" | tee /out/prober.json
# Pages of the pool were judged, while their tables were shared and taken apart.
grep -q '"hugetlb":[1-9][0-9]\{2\}' /out/prober.json
