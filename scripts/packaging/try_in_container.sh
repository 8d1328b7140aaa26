#!/bin/sh
# Try wheels as a user would, on a machine without a compiler: try_in_container.sh FOLDER ...
# The first folder has specchat's wheel, the others those of llama-cpp-python.
set -eu
cd "$(dirname "$0")/../.."

python=python3
if command -v apt-get >/dev/null; then
    apt-get update
    apt-get install --yes --no-install-recommends python3-venv
elif command -v dnf >/dev/null; then
    dnf install --assumeyes python3.11
    python=python3.11
fi

wheel=$(echo "$1"/specchat-*.whl)
shift
for folder in "$@"; do
    set -- "$@" --find-links "$folder"
    shift
done
exec "$python" scripts/packaging/try_wheels.py "$wheel" "$@"
