#!/bin/sh
# Build a wheel of llama-cpp-python in a container: build_in_container.sh cpu|vulkan|cuda [OPTION ...]
# The wheel comes to dist/BACKEND; options are those of build_llama_wheel.py.
#   cpu     in a manylinux image, whose old C library lets the wheel run on old systems
#   vulkan  in Debian, which packages the shader compiler
#   cuda    in an image with CUDA's toolkit
set -eu
backend=$1
shift
cd "$(dirname "$0")/../.."

python=python3
if [ -x /opt/python/cp311-cp311/bin/python ]; then # manylinux has a compiler and all Pythons
    python=/opt/python/cp311-cp311/bin/python
elif command -v apt-get >/dev/null; then
    toolkit=
    [ "$backend" != vulkan ] || toolkit="libvulkan-dev glslc spirv-headers"
    apt-get update
    # shellcheck disable=SC2086 # a list of packages
    apt-get install --yes --no-install-recommends g++ python3-venv $toolkit
elif command -v dnf >/dev/null; then
    dnf install --assumeyes gcc-toolset-13-gcc-c++ python3.11
    python=python3.11
    PATH=/opt/rh/gcc-toolset-13/root/usr/bin:$PATH
fi

"$python" -m venv build/packaging
build/packaging/bin/python -m pip install --quiet \
    -r scripts/requirements-build.txt -r scripts/packaging/requirements.txt
export PYTHONPATH="$PWD" PATH="$PWD/build/packaging/bin:$PATH" # cmake's and ninja's, too
exec build/packaging/bin/python scripts/packaging/build_llama_wheel.py \
    --backend "$backend" --out "dist/$backend" "$@"
