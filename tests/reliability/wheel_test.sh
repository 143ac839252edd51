#!/bin/sh
# wheel_test.sh [TORCH...]: build the source distribution, the wheel from it, install that into an empty environment for each
# torch (torch==2.6.0, say; by default the one in constraints.txt), and run tests from there. PYTHON comes from the Makefile.
set -e
root=$(pwd) work=$(pwd)/build/wheel-test
rm -rf "$work" && mkdir -p "$work/dist"
"$PYTHON" -c "import sys; from scikit_build_core.build import build_sdist; print(build_sdist(sys.argv[1]))" "$work/dist"
"$PYTHON" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/dist" "$work"/dist/fwcrf-*.tar.gz
ls -l "$work/dist"
# Another torch brings what it needs in versions of its own.
grep -vE '^(torch|triton|sympy)==' constraints.txt >"$work/constraints.txt"
for torch in "${@:-torch}"; do
    env=$work/env-$(echo "$torch" | tr -c 'a-z0-9.\n' -)
    constraints=$work/constraints.txt
    [ "$torch" = torch ] && constraints=constraints.txt
    "$PYTHON" -m venv "$env"
    "$env/bin/python" -m pip install --quiet --constraint "$constraints" "$torch" pytest pytest-timeout hypothesis scipy
    "$env/bin/python" -m pip install --quiet --constraint "$constraints" "$torch" "$(echo "$work"/dist/fwcrf-*.whl)[train]"
    # Away from the sources, so that nothing but the wheel can be imported.
    rm -rf "$env/tests" && cp -r tests "$env/tests" && cp pyproject.toml "$env/"
    cd "$env"
    bin/python -c "import fwcrf, torch; print(fwcrf.__file__, 'with torch', torch.__version__, fwcrf._core.isa())"
    bin/fwcrf --version
    # How quickly it is imported, beside torch, is a question to one torch only.
    bin/python -m pytest -q -p no:cacheprovider --deselect tests/test_import.py::test_import_is_quick tests/test_import.py tests/test_api_snapshot.py tests/test_energy.py \
        tests/test_rounding.py tests/torch_ops/test_simplex.py tests/test_layer.py tests/engine/test_updates.py tests/kernels/test_gaussians.py \
        tests/refine/test_refine.py tests/graphs/test_operator.py tests/apps/files tests/apps/cli/test_refine_command.py \
        tests/reliability/test_found.py tests/examples
    cd "$root"
done
