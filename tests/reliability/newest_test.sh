#!/bin/sh
# newest_test.sh: the test suite with the newest version of every package, in an environment of its own, beside torch of
# constraints.txt unless TORCH is another requirement (torch, say). PYTHON is a Python; TESTS are arguments of pytest.
set -e
work=$(pwd)/build/newest torch=${TORCH:-$(grep '^torch==' constraints.txt)}
rm -rf "$work" && mkdir -p "$work"
"$PYTHON" -m venv "$work/env"
# torch first, so that nothing can choose another build of it.
"$work/env/bin/python" -m pip install --quiet "$torch"
"$work/env/bin/python" -m pip install --quiet --upgrade "$torch" scikit-build-core nanobind cmake ninja
PATH=$work/env/bin:$PATH "$work/env/bin/python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/dist" .
"$work/env/bin/python" -m pip install --quiet --upgrade --upgrade-strategy eager "$torch" "$(echo "$work"/dist/*.whl)[test]"
"$work/env/bin/python" -m pip list --format freeze >"$work/newest.txt"
"$work/env/bin/python" -m pytest --numprocesses auto --dist worksteal -p no:cacheprovider $TESTS
