# Commits each fault of $faults, with its name on the console before it (lab/src/debug/faults.rs).
dmesg -n 8 # kmemleak speaks quietly
kernel=/proc/sys/kernel
stall=/sys/module/rcupdate/parameters/rcu_cpu_stall_timeout
commit() { insmod /lab/tierscope_faults.ko fault="$1" && rmmod tierscope_faults; }
for fault in $faults; do
    echo "<4>lab: fault $fault" >/dev/kmsg
    case $fault in
    out-of-memory)
        sleep 1000 &
        echo 1000 >/proc/$!/oom_score_adj
        echo f >/proc/sysrq-trigger
        wait $!
        ;;
    rss | pgtables)
        commit "$fault"
        # Noticed when every CPU has left the address space of insmod.
        for cpu in 0 1; do taskset -c $cpu cat /proc/self/stat; done
        ;;
    leak)
        commit leak
        sleep 6 # younger objects are not judged
        echo scan >/sys/kernel/debug/kmemleak
        echo scan >/sys/kernel/debug/kmemleak
        ;;
    stall | irqs-off | reader)
        echo 1 >$kernel/watchdog_thresh
        echo 3 >$stall
        commit "$fault"
        echo 60 >$kernel/watchdog_thresh
        echo 60 >$stall
        ;;
    hung)
        echo 2 >$kernel/hung_task_timeout_secs
        commit hung
        echo 120 >$kernel/hung_task_timeout_secs
        ;;
    *) commit "$fault" ;;
    esac
done
echo "<4>lab: fault none" >/dev/kmsg
exit 0
