#!/bin/sh
# arm_test.sh [CASES]: the native core cross-compiled for aarch64 and run by qemu: answers with every number of labels
# against the stored ones, on one thread and on two, then CASES random cases. Once by GCC with OpenMP, as on Linux, and once by
# Clang with threads of its own, as on macOS. COMPILERS is a part of "gcc clang"; PYTHON, CMAKE and NINJA come from the Makefile.
set -e
cases=${1:-2000} run="qemu-aarch64 -L /usr/aarch64-linux-gnu"
sh tests/reliability/need.sh "aarch64-linux-gnu-g++ qemu-aarch64" "g++-aarch64-linux-gnu qemu-user"
for compiler in ${COMPILERS:-gcc clang}; do
    build=build/arm-$compiler
    if [ "$compiler" = clang ]; then
        sh tests/reliability/need.sh clang++ clang
        chosen="-DCMAKE_CXX_COMPILER=clang++ -DCMAKE_CXX_COMPILER_TARGET=aarch64-linux-gnu -DFWCRF_OPENMP=OFF"
    else
        chosen=-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++
    fi
    mkdir -p $build
    "$CMAKE" -S . -B $build -G Ninja "-DCMAKE_MAKE_PROGRAM=$NINJA" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
        $chosen -DFWCRF_MODULE=OFF -DFWCRF_DRIVER=ON >$build/configure.log
    "$CMAKE" --build $build
    # Operations lane by lane, as compilers make them of loops over lanes.
    for object in $build/CMakeFiles/fwcrf_*_generic.dir/csrc/*/*.o; do
        if aarch64-linux-gnu-objdump --disassemble --reloc "$object" | grep -E "\sfsqrt\s+[sd]|CALL26\s+(sqrt|fma)"; then
            echo "$object takes roots or products lane by lane"
            exit 1
        fi
    done
    for threads in 1 2; do
        $run $build/fwcrf_answers $threads >$build/answers.txt
        "$PYTHON" tests/reliability/compare_answers.py $build/answers.txt
    done
    OMP_NUM_THREADS=2 $run $build/fwcrf_driver "$cases" 1
done
