set -e
insmod /lab/tierscope.ko
insmod /lab/tierscope_filler.ko
filler check
filler time "$gib" | tee /out/time.txt
# A process that empties nothing: the kernel takes every entry down by itself.
filler hold 64 1 >/tmp/held &
while [ ! -s /tmp/held ]; do sleep 1; done
if rmmod tierscope_filler 2>/dev/null; then
    echo "unloaded while in use"
    exit 1
fi
uptime() { cut -d' ' -f1 /proc/uptime; }
began=$(uptime)
kill $!
wait $! || true
echo "exit  64 GiB $(echo "$began $(uptime)" | awk '{ printf "%.2f", $2 - $1 }') s" | tee -a /out/time.txt
rmmod tierscope_filler
