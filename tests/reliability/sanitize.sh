#!/bin/sh
# sanitize.sh BUILD [CASES]: the random driver on every instruction set, then the native tests and fuzz targets, all with
# sanitizers. PYTHON and PRELOAD come from the Makefile.
set -e
build=$1 cases=${2:-100000}
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
for isa in generic avx2 avx512; do
    FWCRF_ISA=$isa OMP_NUM_THREADS=2 ASAN_OPTIONS=detect_leaks=1 "$build/fwcrf_driver" "$cases" 1
done

tests/reliability/beside.sh "$build"
export PYTHONPATH=$build/package LD_PRELOAD=$PRELOAD ASAN_OPTIONS=detect_leaks=0 FWCRF_SANITIZED=1
"$PYTHON" -c "import fwcrf._core as c; print('sanitized:', c.__file__)"
for target in native_simplex native_lattice native_grid native_pruning native_model native_graph native_arguments native_memory; do
    "$PYTHON" tests/reliability/fuzz.py $target --cases "$((cases / 20))" --seed 2
done
"$PYTHON" -m pytest -q -p no:cacheprovider tests/kernels/test_lattice_channels.py tests/kernels/test_extreme_features.py \
    tests/kernels/test_operator_inputs.py tests/kernels/test_image_lattice.py tests/torch_ops/test_simplex.py \
    tests/engine/test_model.py tests/engine/test_tables.py tests/engine/test_lazy.py tests/engine/test_vanishing.py tests/engine/test_divided_lattices.py \
    tests/graphs/test_operator.py \
    tests/graphs/test_descent.py tests/reliability/test_found.py
