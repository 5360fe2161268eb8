set -eo pipefail
insmod /lab/tierscope.ko
target=/sys/fs/cgroup/target
mkdir $target
# in_target COMMAND...: runs it in the target's cgroup.
in_target() { (echo 0 >$target/cgroup.procs; exec "$@"); }
in_target sleep 100000 &
tierscope record --cgroup $target --cpu 20% --retention 1h -o /tmp/out >/out/record.txt 2>&1 &
recorder=$!
until ls /tmp/out/*/windows.arrows >/dev/null 2>&1; do kill -0 $recorder; sleep 0.2; done

descriptors() { ls /proc/$recorder/fd | wc -l; }
kib() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' /proc/$recorder/status; }
# A shell that executes itself $1 times.
execute() { in_target sh -c '[ "$1" -gt 0 ] || exit 0; exec sh -c "$0" "$0" $(($1 - 1))' '[ "$1" -gt 0 ] || exit 0; exec sh -c "$0" "$0" $(($1 - 1))' "$1"; }
# A shell that forks $1 times, twenty at once.
multiply() { in_target sh -c 'n=0; while [ $n -lt '"$1"' ]; do for each in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do (:) & done; wait; n=$((n + 20)); done'; }
# measure NAME FUNCTION COUNT: what is held after a fifth of it, and after all.
measure() {
    $2 $(($3 / 5))
    sleep 2
    before="$(descriptors),$(kib)"
    $2 $(($3 - $3 / 5))
    sleep 2
    printf '"%s":{"count":%d,"descriptors":[%s,%s],"kib":[%s,%s]}' "$1" "$3" "${before%,*}" "$(descriptors)" "${before#*,}" "$(kib)"
}
{
    printf '{'
    measure execs execute "$execs"
    printf ','
    measure forks multiply "$forks"
    printf '}\n'
} | tee /out/long-life.json
kill -INT $recorder
wait $recorder
tierscope report summary "$(ls -d /tmp/out/2* | head -n 1)" | tail -n 5
