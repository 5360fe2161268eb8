set -e
. /out/foreign.env
[ "$newest" = true ] || insmod /lab/tierscope_flusher.ko
# Other passes over ACCESSED bits would disturb (METRICS.md).
echo 0 >/proc/sys/kernel/numa_balancing 2>/dev/null || true
echo 0 >/sys/kernel/mm/lru_gen/enabled
# It holds DAMON where the kernel starts it.
[ ! -d /sys/module/damon_stat ] || echo N >/sys/module/damon_stat/parameters/enabled

# The host's programs, on this kernel.
ln -s /proc/self/fd /dev/fd
for dir in proc dev; do mount --rbind /$dir /host/$dir; done
# Old versions of damo look for mounts of these names.
mount -t sysfs sysfs /host/sys
mount -t debugfs debugfs /host/sys/kernel/debug
mount -t tracefs tracefs /host/sys/kernel/tracing
# perf maps its file, which /out cannot.
mount -t tmpfs mnt /host/mnt
mkdir /host/mnt/bin /out/files
for venv in /host"$venvs"/venv-*; do
    bin=${venv#/host}/bin
    printf '#!/bin/sh\nexec %s/python %s/damo "$@"\n' "$bin" "$bin" >/host/mnt/bin/damo-"${venv##*-}"
done
# Versions of damo before 3.4 try perf with a pipe for its output, which perf 6.1 does not write in TCG.
cat >/host/mnt/bin/perf <<'BASH'
#!/bin/bash
case " $* " in *" -- sleep 0 "*) exit 0 ;; esac
exec /usr/bin/perf "$@"
BASH
# Touches 8 of 32 MiB for some seconds. Without flushes of the TLB, TCG never sets a bit again.
cat >/host/mnt/bin/target <<'PYTHON'
#!/usr/bin/python3
import mmap, os, sys, time
if os.path.exists("/dev/tierscope_flusher"):
    with open("/dev/tierscope_flusher", "w") as flusher:
        flusher.write(f"{os.getpid()} 5000\n")
memory = mmap.mmap(-1, 32 << 20)
for at in range(0, 32 << 20, 4096):
    memory[at] = 1
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for at in range(0, 8 << 20, 4096):
        memory[at] = 1
    time.sleep(0.005)
PYTHON
chmod +x /host/mnt/bin/*

in_host() {
    chroot /host /usr/bin/env -i PATH=/mnt/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/mnt TERM=dumb \
        PYTHONDONTWRITEBYTECODE=1 /bin/bash -c "cd /mnt; $1"
}
# Runs a command that writes the file $1, and keeps both; a command that fails is shown, and left out.
made() {
    if in_host "$2" >/tmp/log 2>&1 && [ -s "/host/mnt/$1" ]; then
        cp -r "/host/mnt/$1" /out/files/
        printf '%s\t%s\n' "$1" "$2" >>/out/commands
        echo "made $1: $(stat -c %s "/host/mnt/$1") bytes in $(cut -d. -f1 /proc/uptime) s"
    else
        echo "not made: $1: $2"
        tail -n 3 /tmp/log
    fi
}

old="-n 10 -m 20 -s 5000 -a 200000 -u 1000000"
new="--monitoring_intervals 5ms 200ms 1s --monitoring_nr_regions_range 10 20"
damo=damo-3.4.3

# What only the newest kernel and damo have: filters within regions, probes, tuned intervals, events of them.
if [ "$newest" = true ]; then
    made new-json "$damo record --do_record access $new --output_type json --out new-json 'target 8'"
    made new-snapshots "$damo record --do_record access $new --snapshot 1 4 --output_type json --out new-snapshots 'target 14'"
    made new-filter "$damo record --do_record access $new --snapshot 1 4 --snapshot_damos_filter allow anon --output_type json --out new-filter 'target 14'"
    made new-tuned "$damo record --do_record access --monitoring_intervals_autotune --monitoring_nr_regions_range 10 20 --output_type json --out new-tuned 'target 12'"
    made new-tuned-script "$damo record --do_record access --monitoring_intervals_autotune --monitoring_nr_regions_range 10 20 --output_type perf_script --out new-tuned-script 'target 12'"
    made new-events "$damo record --do_record access damon_trace_events --monitoring_intervals_autotune --monitoring_nr_regions_range 10 20 --damos_action stat --output_type json --out new-events 'target 8'"
    made new-probes "$damo record --do_record access $new --probe --probe_filter allow anon --output_type json --out new-probes 'target 8'"
    made new-probes-snapshots "$damo record --do_record access $new --probe --probe_filter allow anon --snapshot 1 4 --output_type json --out new-probes-snapshots 'target 14'"
    made new-schemes "$damo record --do_record access $new --damos_action stat --damos_access_rate 0% max --damos_age 0 max --damos_filter allow anon --schemes_target_regions --output_type json --out new-schemes 'target 8'"
    made new-units "$damo record --do_record access --ops paddr --damon_addr_unit 4096 $new --output_type json --out new-units --timeout 6"
    exit 0
fi

# Before others leave parameters in sysfs that it does not understand.
for type in record perf_script perf_data; do
    made "1.8-$type" "damo-1.8.0 record $old --output_type $type -o 1.8-$type 'target 8'"
done

# perf and trace-cmd next to a damo that records nothing.
for name in first second; do
    in_host "echo \$\$ >$name.pid; exec target 1000" >/dev/null 2>&1 &
done
sleep 8
read -r target </host/mnt/first.pid
read -r second </host/mnt/second.pid
in_host "$damo start --target_pid $target $new --damos_action stat" || echo "not started"
made damon.perf "perf record -a -e damon:damon_aggregated -o damon.perf -- sleep 3"
made perf-script "perf script -i damon.perf >perf-script"
made perf-script-ns "perf script --ns -i damon.perf >perf-script-ns"
made perf-script-header "perf script --header -i damon.perf >perf-script-header"
made perf-script-fields "perf script -F comm,pid,tid,cpu,time,event,trace -i damon.perf >perf-script-fields"
made perf-script-few "perf script -F time,event,trace -i damon.perf >perf-script-few"
made perf-script-events "perf script --show-mmap-events --show-task-events -i damon.perf >perf-script-events"
made damos.perf "perf record -a -e damon:damon_aggregated -e damon:damos_before_apply -o damos.perf -- sleep 3"
made perf-damos "perf script -i damos.perf >perf-damos"
made damos-only "perf record -a -e damon:damos_before_apply -o only.perf -- sleep 3 && perf script -i only.perf >damos-only"
made trace-cmd.dat "trace-cmd record -q -e damon:damon_aggregated -o trace-cmd.dat sleep 3"
made trace-cmd "trace-cmd report -i trace-cmd.dat >trace-cmd"
made trace-cmd-latency "trace-cmd report -l -i trace-cmd.dat >trace-cmd-latency"
made trace-cmd-nanoseconds "trace-cmd report -t -i trace-cmd.dat >trace-cmd-nanoseconds"
made trace-cmd-raw "trace-cmd report -R -i trace-cmd.dat >trace-cmd-raw"
made trace-cmd-deltas "trace-cmd report --ts-diff -i trace-cmd.dat >trace-cmd-deltas"
made trace-cmd-damos "trace-cmd record -q -e damon -o damos.dat sleep 3 && trace-cmd report -i damos.dat >trace-cmd-damos"
tracing=/sys/kernel/tracing
made tracefs "echo 1 >$tracing/events/damon/damon_aggregated/enable; sleep 3; echo 0 >$tracing/events/damon/enable; cat $tracing/trace >tracefs; echo >$tracing/trace"
made tracefs-tgid "echo 1 >$tracing/options/record-tgid; echo 1 >$tracing/events/damon/damon_aggregated/enable; sleep 3; echo 0 >$tracing/events/damon/enable; cat $tracing/trace >tracefs-tgid; echo >$tracing/trace"
made trace-pipe "echo 1 >$tracing/events/damon/damon_aggregated/enable; timeout 3 cat $tracing/trace_pipe >trace-pipe; echo 0 >$tracing/events/damon/enable"
in_host "$damo stop" || true
in_host "$damo start --target_pid $target $new --damon_target --target_pid $second" || in_host "$damo start --target_pid $target --target_pid $second $new" || echo "two targets: not started"
made perf-two-targets "perf record -a -e damon:damon_aggregated -o two.perf -- sleep 3 && perf script -i two.perf >perf-two-targets"
in_host "$damo stop" || true
in_host "$damo start --kdamond --damon_ctx --damon_target --target_pid $target $new --kdamond --damon_ctx --damon_target --target_pid $second $new" || echo "two kdamonds: not started"
made perf-two-kdamonds "perf record -a -e damon:damon_aggregated -o kdamonds.perf -- sleep 3 && perf script -i kdamonds.perf >perf-two-kdamonds"
in_host "$damo stop" || true
made 3.4-two-kdamonds "$damo record --do_record access --kdamond --damon_ctx --damon_target --target_pid $target $new --kdamond --damon_ctx --damon_target --target_pid $second $new --timeout 6 --output_type json --out 3.4-two-kdamonds"

# No PMU in TCG: samples of page faults have what memory samples have.
faults="python3 -c 'import mmap; m = mmap.mmap(-1, 4 << 20); [m.__setitem__(at, 1) for at in range(0, 4 << 20, 4096)]'"
made faults.perf "perf record -e page-faults -c 4 -d -o faults.perf -- $faults"
made faults "perf script -F comm,pid,tid,time,event,addr -i faults.perf >faults"
made faults-ip "perf script -F comm,pid,tid,time,period,event,addr,ip,sym -i faults.perf >faults-ip"
made faults-ns "perf script --ns -F comm,tid,time,event,addr -i faults.perf >faults-ns"
made faults-events "perf script --show-mmap-events --show-task-events -F comm,pid,tid,time,event,addr -i faults.perf >faults-events"
made faults-all "perf record -a -e page-faults -c 16 -d -o all.perf -- $faults && perf script -F comm,pid,tid,cpu,time,event,addr -i all.perf >faults-all"
made faults-weight "perf record -e page-faults -c 4 -d -W --data-page-size -o weight.perf -- $faults && perf script -F comm,pid,tid,time,event,addr,weight,data_page_size -i weight.perf >faults-weight"
made faults-phys "perf record -e page-faults -c 4 -d --phys-data -o phys.perf -- $faults && perf script -F comm,pid,tid,time,event,addr,phys_addr -i phys.perf >faults-phys"
kill $target $second

for version in 2.2.0 2.7.0 3.0.0 3.4.3; do
    short=${version%.*}
    # Old versions have no choice, and record accesses only.
    case $short in 2.2) what="" ;; *) what="--do_record access" ;; esac
    for type in json_compressed json perf_script perf_data; do
        made "$short-$type" "damo-$version record $new $what --output_type $type --out $short-$type 'target 8'"
    done
    made "$short-schemes" "damo-$version record $new $what --damos_action stat --damos_access_rate 5% max --damos_age 0 max --schemes_target_regions --output_type json --out $short-schemes 'target 8'"
done

# What the newest damo can do besides.
made 3.4-fvaddr "$damo record --do_record access --ops fvaddr $new --output_type json --out 3.4-fvaddr 'target 8'"
made 3.4-paddr "$damo record --do_record access --ops paddr $new --output_type json --out 3.4-paddr --timeout 8"
made 3.4-pageout "$damo record --do_record access $new --damos_action pageout --damos_access_rate 0% 0% --damos_age 0 max --damos_filter reject anon --schemes_target_regions --output_type json --out 3.4-pageout 'target 8'"
made 3.4-hot-only "$damo record --do_record access $new --access_rate 5% max --output_type json --out 3.4-hot-only 'target 8'"
made 3.4-adjusted "$damo adjust --aggregate_interval 1000000 --input 3.4-json_compressed --output_type json --output 3.4-adjusted"
made 3.4-converted "cp 3.4-perf_script 3.4-converted && $damo convert_record_format --record_file 3.4-converted --format json --output_file 3.4-converted"

in_host 'perf --version; trace-cmd --version; uname -r' >/out/versions 2>&1 || true
