set -eo pipefail
# ends CODE COMMAND...: ends with that code; what it prints is kept in /tmp/printed.
ends() {
    want=$1
    shift
    got=0
    "$@" >/tmp/printed || got=$?
    [ "$got" = "$want" ] || { cat /tmp/printed; echo "ended with $got instead of $want: $*"; exit 1; }
}
# says CHECK VERDICT: the check of that id has that verdict in /tmp/printed.
says() {
    verdict=$(sed -n "/\"id\": \"$1\"/,/}/s/.*\"verdict\": \"\(.*\)\".*/\1/p" /tmp/printed)
    [ "$verdict" = "$2" ] || { cat /tmp/printed; echo "$1 is $verdict instead of $2"; exit 1; }
}

# Without the module the kernel's DAMON is a way, where there is one.
if [ "$damon" = yes ]; then
    ends 0 tierscope doctor --json
    says damon-sysfs present
    says damon-tracepoint present
else
    ends 3 tierscope doctor --json
    says damon-sysfs missing
fi
says module missing
# So it is the choice of `record`: with its processes as they come and go, and with all reports.
sh -c 'sleep 2; sleep 1000 & sleep 4 & sleep 1000; true' &
root=$!
if [ "$damon" = yes ]; then
    tierscope record -p $root --children --duration 6s --update 500ms --json -o /tmp/auto >/tmp/printed 2>/tmp/said
    cat /tmp/said
    grep -q '"instrument": "kernel-damon"' /tmp/printed
    grep -q 'watching by kernel-damon instead of rates, because of the kernel module' /tmp/said
    for each in summary heatmap regions wss ages; do tierscope report $each /tmp/auto --json >/tmp/printed; done
    # The shell and its first child were there at the start.
    tierscope report regions /tmp/auto --json >/out/regions.json
    grep -q '"space": [2-9]' /out/regions.json
else
    ends 3 tierscope record -p $root --children --duration 6s -o /tmp/auto 2>/tmp/said
    cat /tmp/said
    grep -q '^tierscope: recording cannot work here: kernel module: .* | sampled addresses: .* | kernel DAMON: .*; ' /tmp/said
fi
ends "$([ "$damon" = yes ] && echo 0 || echo 3)" tierscope doctor --json
says module missing
says module-signing present
says kernel present
says hypervisor present
says numa limited
says move-pages present
says process-madvise present
says capabilities present
says cgroup present
says idle-pages missing
says mglru "$([ "$damon" = yes ] && echo limited || echo present)"

insmod /lab/tierscope.ko
ends 0 tierscope doctor --json
says module present
says module-levels present
says module-flush present
says module-handback "$([ "$damon" = yes ] && echo present || echo limited)"

sleep 1000 &
ends 0 tierscope doctor --json -p $!
says target present
says permission present
says mappings limited
says guest-memory present
ends 5 tierscope doctor --json -p 2
says target missing
ends 5 tierscope doctor --json -p 999999

# In a user namespace of its own root has capabilities that do not count for the module; the files of
# DAMON's sysfs are root's still.
ends "$([ "$damon" = yes ] && echo 0 || echo 4)" unshare -r tierscope doctor --json
says module forbidden

tierscope doctor -p $! | tee /out/doctor.txt
rmmod tierscope

# A locked-down kernel refuses the module, and both commands say why.
mount -t securityfs security /sys/kernel/security
echo integrity >/sys/kernel/security/lockdown
! insmod /lab/tierscope.ko || exit 1
tierscope doctor --json >/tmp/printed || true
says module-signing missing
got=0
tierscope record -p $! --instrument rates --duration 1s -o /tmp/locked 2>/tmp/printed || got=$?
cat /tmp/printed
[ "$got" = 3 ]
grep -q '^tierscope: .*kernel lockdown is integrity; sign the module' /tmp/printed
