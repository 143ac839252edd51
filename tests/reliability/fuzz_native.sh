#!/bin/sh
# fuzz_native.sh BUILD [CASES]: the native core fuzzed by libFuzzer, guided by coverage, with sanitizers; needs clang.
# PYTHON comes from the Makefile. A find ends it with status 1 and leaves the case in BUILD; those that were fixed are in
# native/found and run first.
set -e
build=$1 cases=${2:-50000}
command -v clang++ >/dev/null || { echo "clang is not installed; the native core will not be guided by coverage"; exit 0; }
mkdir -p "$build/corpus"
# On one thread: clang's OpenMP is another one than the compiler's that builds the library.
cmake -S . -B "$build" -G Ninja -DPython_EXECUTABLE="$(pwd)/$PYTHON" -DCMAKE_CXX_COMPILER=clang++ -DFWCRF_OPENMP=OFF \
    -DFWCRF_SANITIZE=fuzzer,address,undefined -DFWCRF_DRIVER=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    '-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1 -fno-sanitize-recover=all' >"$build/configure.log"
cmake --build "$build" --target fwcrf_driver
for isa in generic avx2; do
    FWCRF_ISA=$isa "$build/fwcrf_driver" -runs="$cases" -seed=1 -max_len=64 -len_control=0 -timeout=300 -rss_limit_mb=4000 \
        -print_final_stats=1 -artifact_prefix="$build/" "$build/corpus" tests/reliability/native/found
done
