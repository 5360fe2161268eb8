# The venv with damo in it, made by scripts/test-damo.
set -euo pipefail
python=$(realpath -s "${DAMO_VENV:-target/damo/venv}")/bin/python
"$python" -c 'import damo'
echo "python=$python" >"$LAB_OUT/damo.env"
