set -eo pipefail
insmod /lab/tierscope.ko
insmod /lab/tierscope_flusher.ko
for number in $(seq "$processes"); do sleep 100000 & done
toucher "contiguous:space=${space_mib}MiB,hot=${hot_mib}MiB" --passes 0 --ready /tmp/ready >/dev/null &
target=$!
until [ -e /tmp/ready ]; do sleep 0.2; done
echo "$target 20000" >/dev/tierscope_flusher

# The soft limit is lower than what is needed, and the hard one is not: the recorder raises it.
launched=$(date +%s)
(
    ulimit -Sn 256
    exec tierscope record --all --duration "${seconds}s" --cpu "$cpu" -o /out/recording 2>/out/record.txt
) &
record=$!
# Seconds, descriptors and resident KiB of the recorder.
: >/out/use.txt
for second in $(seq $((seconds + 60))); do
    sleep 1
    set -- /proc/$record/fd/*
    resident=
    while read -r key value _; do
        [ "$key" != VmRSS: ] || resident=$value
    done 2>/dev/null </proc/$record/status || break
    [ -n "$resident" ] || break
    echo "$second $# $resident" >>/out/use.txt
done
wait $record
cat /out/use.txt
cat /out/record.txt
tierscope report summary /out/recording >/out/summary.txt
tierscope report summary /out/recording --json >/out/summary.json
head -n 40 /out/summary.txt
tail -n 3 /out/summary.txt
tierscope export /out/recording --csv --table metrics -o - >/out/metrics.csv 2>/dev/null
tierscope report wss /out/recording --json >/out/wss.json

space=$(awk -v name="toucher[$target]" 'index($0, name) { print $1; exit }' /out/summary.txt)
awk -F, -v space="$space" '$3 == "hot_bytes" && $4 == space { print int($5 / 1024) }' /out/metrics.csv >/out/hot.txt
started=$(sed -n 's/.*"started_unix_ns": *\([0-9]*\).*/\1/p' /out/summary.json)
echo "recording began after $(((started / 1000000 - launched * 1000))) ms, less up to 1000"
echo "hot by window, in MiB: $(awk '{ printf "%d ", $1 / 1024 }' /out/hot.txt)"
windows=$(wc -l </out/hot.txt)
first=$(awk -v least=$((hot_mib * 512)) '$1 >= least { print NR; exit }' /out/hot.txt)
echo "half of the hot bytes are known in window $first"
# Of the windows of the second half: the median.
hot=$(tail -n $((windows / 2)) /out/hot.txt | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }')
echo "hot $hot KiB of $((hot_mib * 1024)), in $windows windows"
spaces=$(awk '/"spaces"/ { here = 1 } here && /"space": [0-9]/ { count++ } END { print count + 0 }' /out/summary.json)
echo "$spaces spaces with rows of their own"
[ "$spaces" -ge "$processes" ]
if grep -q 'left out' /out/record.txt; then exit 1; fi
share=$(sed -n 's/.*s of CPU (\([0-9]*\).*/\1/p' /out/record.txt)
echo "the profiler took $share % of a CPU, may take $cpu"
[ "$share" -le "${cpu%\%}" ]
# From the 10th second on: the range of descriptors and of resident memory.
awk '$1 >= 10 {
        if (!least || $2 < least) least = $2; if ($2 > most) most = $2
        if (!low || $3 < low) low = $3; if ($3 > high) high = $3
    } END {
        print "descriptors " least " to " most ", resident " low " to " high " KiB"
        exit !(least > 0 && most - least <= 32 && high - low <= low / 10)
    }' /out/use.txt
[ $((hot * 12)) -ge $((hot_mib * 1024 * 10)) ]
[ $((hot * 10)) -le $((hot_mib * 1024 * 12)) ]

# With too few descriptors, the processes beyond them are left out, and one line says how many.
(
    ulimit -n 256
    exec tierscope record --all --duration 10s --cpu "$cpu" -o /out/few 2>/out/few.txt
)
cat /out/few.txt
[ "$(grep -c 'processes are left out: .*; .*ulimit' /out/few.txt)" = 1 ]
rmmod tierscope
