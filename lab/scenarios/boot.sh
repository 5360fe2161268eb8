set -e
uname -r
cat /sys/devices/system/clocksource/clocksource0/current_clocksource
uname -r >/out/release
