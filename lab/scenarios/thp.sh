set -e
# glibc asks for large pages for all that malloc(3) maps on request (manual, "Memory Allocation Tunables").
[ "$huge" = 1 ] && export GLIBC_TUNABLES=glibc.malloc.hugetlb=1
head -n "$lines" /out/lines.txt >/tmp/lines.txt
before=$(awk '/^thp_fault_alloc/ { print $2 }' /proc/vmstat)
LC_ALL=C coreutils-sort --parallel=1 -S 96M -o /tmp/sorted.txt /tmp/lines.txt
after=$(awk '/^thp_fault_alloc/ { print $2 }' /proc/vmstat)
[ "$(wc -l </tmp/sorted.txt)" = "$lines" ]
echo "{\"lines\": $lines, \"huge_pages\": $((after - before))}" | tee /out/thp.json
