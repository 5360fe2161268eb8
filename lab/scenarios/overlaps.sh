set -eo pipefail
echo $((swap_mb << 20)) >/sys/block/zram0/disksize
mkswap /dev/zram0
swapon /dev/zram0
echo 48 >/proc/sys/vm/nr_hugepages
ksm=/sys/kernel/mm/ksm
echo 500 >$ksm/pages_to_scan
echo 5 >$ksm/sleep_millisecs
echo 1 >$ksm/run
insmod /lab/tierscope.ko
prober --probes "$probes" --seed "$seed" --threads "$threads" --life-ms "$life_ms" --overlaps "$overlaps" | tee /out/prober.json
# What leaked, on kernels that look for it; twice: objects that have just changed are left alone.
leaks=/sys/kernel/debug/kmemleak
if [ -e $leaks ]; then
    dmesg -n 7
    sleep 6
    echo scan >$leaks
    echo scan >$leaks
    cat $leaks | tee /out/leaks.txt
    [ ! -s /out/leaks.txt ]
fi
