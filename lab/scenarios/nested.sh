set -eo pipefail
insmod /lab/tierscope.ko
grep . /sys/module/kvm_amd/parameters/npt
small-guest "$ram_mib" "$guest_hot_mib" "$own_mib" "$own_hot_mib" "$pause_ms" /tmp/ready >/out/addresses.txt &
monitor=$!
until [ -e /tmp/ready ]; do
    kill -0 $monitor
    sleep 0.2
done
read -r _ ram _ own </out/addresses.txt

# referenced START: KiB of the mapping at START whose page-table entries are accessed.
referenced() {
    awk -v start="${1#0x}" '
        /^[0-9a-f]+-/ { here = index($1, start "-") == 1 }
        here && $1 == "Referenced:" { print $2 }' /proc/$monitor/smaps
}
# The bits of the process's own table, cleared and read by the kernel: for 16 MiB that the guest writes, one page at most.
echo 1 >/proc/$monitor/clear_refs
sleep 5
ram_bits=$(referenced "$ram")
own_bits=$(referenced "$own")
echo "after 5 s: $ram_bits KiB of the guest's RAM are accessed in the host's page table, $own_bits KiB of the monitor's memory"
[ "$ram_bits" -le 4 ]
[ "$own_bits" = $((own_hot_mib * 1024)) ]

tierscope doctor -p $monitor 2>&1 | tee /out/doctor.txt || [ $? -le 1 ]
grep -q "it runs a virtual machine: $ram_mib MiB in writable mappings" /out/doctor.txt
tierscope record -p $monitor --duration "${seconds}s" --cpu "$cpu" -o /out/recording 2>/out/record.txt
tail -n 1 /out/record.txt
tierscope report summary /out/recording | tee /out/summary.txt
tierscope report summary /out/recording --json >/out/summary.json
grep -q 'guest' /out/summary.txt

# median KEY: the median of a figure of the whole target, in KiB.
median() {
    awk -v key="\"$1\":" '
        /^  "/ && $1 == key { here = 1 }
        here && $1 == "\"p50\":" { print int($2 / 1024); exit }' /out/summary.json
}
guest=$(median unknown_guest_bytes)
hot=$(median hot_bytes)
cold=$(median cold_bytes)
echo "guest $guest KiB, hot $hot KiB, cold $cold KiB"
[ "$guest" = $((ram_mib * 1024)) ]
# The monitor's own memory is judged: of its idle part, at least half is cold; its program and stack are
# below 2 MiB. No lower bound for its hot part: the passes of a second are not measured.
[ "$cold" -ge $(((own_mib - own_hot_mib) * 1024 / 2)) ]
[ "$cold" -le $(((own_mib + 2) * 1024)) ]
[ "$hot" -le $(((own_hot_mib + 2) * 1024 * 12 / 10)) ]
kill $monitor
wait $monitor || true
rmmod tierscope
