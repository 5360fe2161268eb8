set -eo pipefail
# fails CODE COMMAND...: ends with that code and says why in one line.
fails() {
    want=$1
    shift
    got=0
    "$@" >/tmp/printed 2>&1 </dev/null || got=$?
    cat /tmp/printed
    [ "$got" = "$want" ] || { echo "ended with $got instead of $want: $*"; exit 1; }
    [ "$(grep -c '^tierscope: .*: .*; ' /tmp/printed)" = 1 ] || { echo "not one line with cause and remedy: $*"; exit 1; }
}
# because REASON: the message of the last `fails` has it.
because() {
    grep -q "$1" /tmp/printed || { echo "the reason is not: $1"; exit 1; }
}
# windows DIR: how many windows a report reads.
windows() {
    tierscope report summary "$1" --json | sed -n 's/.*"windows": *\([0-9]*\).*/\1/p' | head -n 1
}
# holds DIR WINDOWS: can be read, and has at least that many windows.
holds() {
    [ "$(windows "$1")" -ge "$2" ] || { echo "$1 holds $(windows "$1") windows instead of $2"; exit 1; }
}
# promised: the windows that the error of a full disk promises.
promised() {
    sed -n 's/.*; \([0-9]*\) windows\{0,1\} committed before can be read.*/\1/p' /tmp/printed
}

/bin/sleep 1000 &
target=$!
fails 3 tierscope record -p "$target" --duration 1s -o /tmp/no-module
# The emulated CPU has no PMU. Samples need no module: the PMU is the reason.
fails 3 tierscope record --instrument pebs -p "$target" --duration 1s -o /tmp/no-pmu
because 'no PMU that samples addresses of loads and stores; use hardware with PEBS or IBS'
fails 3 tierscope record --instrument hint-fault -p "$target" --duration 1s -o /tmp/no-hint-faults
because 'user space cannot arm them in another process; simulate it'
insmod /lab/tierscope.ko
fails 5 tierscope record -p 999999 --duration 1s -o /tmp/no-pid
fails 2 tierscope record -p 2 --duration 1s -o /tmp/kernel-thread
fails 2 tierscope record -p "$target" --sampling 0s -o /tmp/no-time
fails 5 tierscope record --cgroup /sys/fs/cgroup/none --duration 1s -o /tmp/no-cgroup
mkdir /sys/fs/cgroup/empty
fails 5 tierscope record -p "$target" --cgroup /sys/fs/cgroup/empty --duration 1s -o /tmp/empty-cgroup
because 'cgroup /sys/fs/cgroup/empty: no process is in it; start one there first'
fails 5 tierscope record -p "$target" --name 'no-such-*' --duration 1s -o /tmp/no-name
because 'no process has such a name; list the names'
fails 2 tierscope record --all -p "$target" --duration 1s -o /tmp/all-and-one
# A target that ends in the first window.
sleep 2 &
fails 7 tierscope record -p $! --window 10s -o /tmp/short
because 'it ended before the first window of 10s did'
# Nothing else runs in a pid namespace of its own.
fails 5 unshare --fork --pid --mount-proc tierscope record --all --duration 1s -o /tmp/alone
because 'only tierscope and threads of the kernel run here; start a process first'
# Root of a user namespace of its own has every capability but the two that count.
fails 4 unshare -r tierscope record -p "$target" --duration 1s -o /tmp/no-permission

# A target that dies in the middle: an exit code of its own, and what was seen is kept. With less of an emulated CPU, windows
# would be longer.
sleep 3 &
fails 7 tierscope record -p $! --cpu 80% --duration 60s -o /tmp/gone
holds /tmp/gone 5

# Of several targets, given twice and by name, the last one that ends is the end.
/bin/sleep 4 &
first=$!
/bin/sleep 8 &
second=$!
fails 7 tierscope record -p "$first" -p "$second" -p "$first" --name 'slee[p]' --cpu 80% --duration 60s -o /tmp/several &
several=$!
sleep 11
kill "$target"
wait "$several"
because 'its last process exited after'
tierscope report summary /tmp/several | tee /tmp/summary
grep -q "sleep\[$first\]" /tmp/summary
grep -q "sleep\[$second\]" /tmp/summary
grep -q "sleep\[$target\]" /tmp/summary
holds /tmp/several 10

# All processes, of which one joins later. Within less of an emulated CPU, that may take seconds.
/bin/sleep 1000 &
target=$!
tierscope record --all --cpu 80% --duration 6s -o /tmp/all &
recorder=$!
sleep 3
/bin/sleep 1000 &
later=$!
wait "$recorder"
tierscope report summary /tmp/all | tee /tmp/summary
grep -q 'all processes' /tmp/summary
for pid in "$target" "$later"; do grep -q "sleep\[$pid\]" /tmp/summary; done
kill "$later"
if grep -q "tierscope\[$recorder\]" /tmp/summary; then exit 1; fi

# A full disk: the report reads exactly the windows that the error promises.
mkdir /tmp/small
mount -t tmpfs -o size=384k tmpfs /tmp/small
fails 8 tierscope record -p "$target" --cpu 80% --duration 60s --window 20ms -o /tmp/small/full
[ "$(promised)" -ge 5 ]
[ "$(windows /tmp/small/full)" = "$(promised)" ]
# Nothing is left of a start for which there is no room.
for start in 1 2 3; do
    fails 8 tierscope record -p "$target" --cpu 80% --duration 60s --retention 24h -o "/tmp/small/series-$start"
    because 'No space left'
    [ "$(ls /tmp/small)" = full ]
done
rm -r /tmp/small/full
# A series with recordings of years ago fills the disk; with the next start it removes them itself.
tierscope record -p "$target" --duration 1s --retention 24h -o /tmp/small/series
first=$(ls /tmp/small/series | grep Z)
for day in 1 2 3; do cp -r "/tmp/small/series/$first" "/tmp/small/series/2001010${day}T000000.000Z"; done
touch -t 202001010000 /tmp/small/series/*/windows.arrows
cat /dev/zero >/tmp/small/filler 2>/dev/null || true
fails 8 tierscope record -p "$target" --cpu 80% --duration 60s -o /tmp/small/one
because 'No space left'
tierscope record -p "$target" --duration 1s --retention 24h -o /tmp/small/series
[ ! -e /tmp/small/series/20010101T000000.000Z ]
[ -e "/tmp/small/series/$first" ]
holds /tmp/small/series 1
umount /tmp/small

# Only the owner reads a recording, or a group.
mkdir -p /etc
printf 'root:x:0:\ndaemon:x:1:\n' >/etc/group
umask 0
tierscope record -p "$target" --duration 1s -o /tmp/private
tierscope record -p "$target" --duration 1s --retention 1h --group daemon -o /tmp/shared
umask 022
[ "$(stat -c '%a %G' /tmp/private /tmp/private/regions.arrows)" = "$(printf '700 root\n600 root')" ]
[ "$(stat -c '%a %G' /tmp/shared /tmp/shared/lock /tmp/shared/*Z)" = "$(printf '750 daemon\n640 daemon\n750 daemon')" ]
fails 2 tierscope record -p "$target" --duration 1s --group no-such-group -o /tmp/no-group
because 'there is no such group'

# kill -9 of the recorder loses the open window at most: of 200 ms, in which it is stopped; the
# machine is slow, so that a commit may take as long again.
tierscope record -p "$target" --cpu 80% --duration 60s -o /tmp/killed &
recorder=$!
sleep 4
kill -STOP "$recorder"
stopped=$(awk '{ printf "%d", $1 * 1000 }' /proc/uptime)
kill -9 "$recorder"
wait "$recorder" || true
windows=$(windows /tmp/killed)
ended=$(tierscope export /tmp/killed --csv --table windows -o - | awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "end_ns") column = i } END { printf "%d", $column / 1000000 }')
echo "$windows windows; stopped at $stopped ms, the last window ended at $ended ms"
[ "$windows" -ge 10 ]
[ "$((stopped - ended))" -le 400 ]

# Ctrl-C ends it cleanly.
tierscope record -p "$target" --cpu 80% --duration 60s -o /tmp/stopped &
recorder=$!
sleep 3
kill -INT "$recorder"
wait "$recorder"
holds /tmp/stopped 5

# A second session on a process is refused, with the pid of the first one. With --share-bits both
# count what the other one cleared. An emulated CPU is too slow to clear anything within 1 % of it.
yes >/dev/null &
busy=$!
tierscope record -p "$target" -p "$busy" --cpu 80% --duration 60s -o /tmp/first &
recorder=$!
sleep 2
fails 10 tierscope record -p "$target" --duration 1s -o /tmp/second
because "process $recorder watches it"
[ ! -e /tmp/second ]
tierscope record -p "$busy" --share-bits --cpu 80% --duration 3s -o /tmp/second
kill -INT "$recorder"
wait "$recorder"
for session in first second; do
    tierscope report wss /tmp/$session >/tmp/printed 2>&1
    grep 'accesses are missing: other sessions cleared' /tmp/printed
done
# The first session ended: nothing is left of its claim.
tierscope record -p "$busy" --duration 1s -o /tmp/third
tierscope report wss /tmp/third >/tmp/printed 2>&1
! grep 'other sessions' /tmp/printed || exit 1
kill "$busy"

# Not a recording; the output is taken.
mkdir /tmp/foreign
echo hello >/tmp/foreign/windows.arrows
fails 9 tierscope report summary /tmp/foreign
fails 2 tierscope record -p "$target" --duration 1s -o /tmp/stopped

kill "$target"
rmmod tierscope
