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
# holds DIR WINDOWS: can be read, and has at least that many windows.
holds() {
    windows=$(tierscope report summary "$1" --json | sed -n 's/.*"windows": *\([0-9]*\).*/\1/p' | head -n 1)
    [ "$windows" -ge "$2" ] || { echo "$1 holds $windows windows instead of $2"; exit 1; }
}

sleep 1000 &
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
# Root of a user namespace of its own has every capability but the two that count.
fails 4 unshare -r tierscope record -p "$target" --duration 1s -o /tmp/no-permission

# A target that dies in the middle: an exit code of its own, and what was seen is kept.
sleep 3 &
fails 7 tierscope record -p $! --duration 60s -o /tmp/gone
holds /tmp/gone 5

# A full disk.
mkdir /tmp/small
mount -t tmpfs -o size=256k tmpfs /tmp/small
fails 8 tierscope record -p "$target" --duration 60s --window 20ms -o /tmp/small/full
holds /tmp/small/full 5

# kill -9 of the recorder loses the open window at most.
tierscope record -p "$target" --duration 60s -o /tmp/killed &
recorder=$!
sleep 4
kill -9 "$recorder"
wait "$recorder" || true
holds /tmp/killed 10

# Ctrl-C ends it cleanly.
tierscope record -p "$target" --duration 60s -o /tmp/stopped &
recorder=$!
sleep 3
kill -INT "$recorder"
wait "$recorder"
holds /tmp/stopped 5

# Not a recording; the output is taken.
mkdir /tmp/foreign
echo hello >/tmp/foreign/windows.arrows
fails 9 tierscope report summary /tmp/foreign
fails 2 tierscope record -p "$target" --duration 1s -o /tmp/stopped

kill "$target"
rmmod tierscope
