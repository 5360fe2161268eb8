# The venvs with versions of damo in them, made by scripts/foreign-files.
set -euo pipefail
venvs=$(realpath -s "${DAMO_VENVS:-target/damo}")
"$venvs/venv-3.4.3/bin/python" -c 'import damo'
echo "venvs=$venvs" >"$LAB_OUT/foreign.env"
