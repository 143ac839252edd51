#!/bin/sh
# lowest_test.sh [TORCH]: the test suite with the lowest version of every requirement of pyproject.toml, those of the build
# included, in an environment of its own. torch is the one in constraints.txt unless given (torch==2.6.0): other builds of it bring
# gigabytes of CUDA from some indexes. PYTHON comes from the Makefile; TESTS are arguments of pytest, by default all tests.
set -e
work=$(pwd)/build/lowest torch=${1:-$(grep '^torch==' constraints.txt)}
rm -rf "$work" && mkdir -p "$work"
"$PYTHON" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --quiet --constraint constraints.txt uv
lowest() { "$work/tools/bin/uv" pip compile --quiet --no-deps --no-strip-extras --no-annotate --no-header --resolution lowest-direct "$@"; }
version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
lowest --python-version "$version" --no-emit-package torch --extra test pyproject.toml >"$work/lowest.txt"
sed -n 's/^requires = //p' pyproject.toml | grep -o '"[^"]*"' | tr -d '"' | lowest --python-version "$version" - >"$work/build.txt"
cat "$work/lowest.txt" "$work/build.txt"

"$PYTHON" -m venv "$work/build"
"$work/build/bin/python" -m pip install --quiet --requirement "$work/build.txt" cmake ninja
PATH=$work/build/bin:$PATH "$work/build/bin/python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/dist" .

# torch first, so that nothing can choose another build of it.
"$PYTHON" -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet "$torch"
"$work/env/bin/python" -m pip install --quiet "$torch" --requirement "$work/lowest.txt" --requirement "$work/build.txt" "$(echo "$work"/dist/*.whl)"
# The wheel is imported, since nothing puts src/ into the path. Old packages warn about newer ones that they need, and
# numpy 1.26 leaves the members of an archive to the collector.
"$work/env/bin/python" -m pytest --numprocesses auto --dist worksteal -p no:cacheprovider \
    -W ignore::DeprecationWarning -W ignore::ResourceWarning $TESTS
