# Lines in no order, of 11 bytes, for the guest to sort.
set -euo pipefail
awk 'BEGIN { s = 1; for (i = 0; i < 600000; i++) { s = (s * 16807) % 2147483647; printf "%010d\n", s } }' >"$LAB_OUT/lines.txt"
