#!/bin/sh
# compilers_test.sh [PART...]: the native core by other compilers, each in a folder of its own under build/:
#   threads   GCC without OpenMP: threads of our own give the same bits as OpenMP
#   clang     Clang without OpenMP, as on macOS: stored answers, random cases, and tests of the Python part on two threads
#   clang-cl  the options that CMake gives to clang-cl, as on Windows; nothing is compiled without Microsoft's headers
#   mingw     GCC for Windows: programs, which run if wine is installed
#   macos     Clang with Apple's headers, for Apple's processors: programs, which nothing here can run
# PYTHON, CMAKE and NINJA come from the Makefile.
set -e
configure() {
    build=build/compilers/$1 && shift && mkdir -p $build
    "$CMAKE" -S . -B $build -G Ninja "-DCMAKE_MAKE_PROGRAM=$NINJA" -DFWCRF_MODULE=OFF -DFWCRF_DRIVER=ON "$@" >$build/configure.log
}

# Vectors of 16 bytes only: a third of the code.
smallest="-DFWCRF_COMPILES_AVX2=OFF -DFWCRF_COMPILES_AVX512=OFF"

threads() {
    configure openmp $smallest && "$CMAKE" --build $build --target fwcrf_answers
    configure threads $smallest -DFWCRF_OPENMP=OFF && "$CMAKE" --build $build
    for threads in 1 2 5; do
        build/compilers/openmp/fwcrf_answers $threads bits >build/compilers/openmp/answers.txt
        $build/fwcrf_answers $threads bits | cmp - build/compilers/openmp/answers.txt
    done
    $build/fwcrf_driver 10000 1
    $build/fwcrf_regions
}

clang() {
    sh tests/reliability/need.sh clang++ clang
    configure clang -DCMAKE_CXX_COMPILER=clang++ -DFWCRF_OPENMP=OFF -DFWCRF_MODULE=ON "-DPython_EXECUTABLE=$PYTHON"
    "$CMAKE" --build $build
    for isa in generic avx2 avx512; do
        FWCRF_ISA=$isa $build/fwcrf_answers 2 >$build/answers.txt
        "$PYTHON" tests/reliability/compare_answers.py $build/answers.txt
        FWCRF_ISA=$isa $build/fwcrf_driver 10000 1
    done
    tests/reliability/beside.sh $build
    export PYTHONPATH=$build/package OMP_NUM_THREADS=2
    "$PYTHON" -c "import fwcrf._core as c; assert not c.openmp() and c.max_threads() == 2, c.__file__; print(c.__file__)"
    "$PYTHON" -m pytest -q -p no:cacheprovider tests/engine tests/kernels/test_lattice_channels.py tests/torch_ops tests/graphs/test_operator.py \
        tests/graphs/test_descent.py tests/reliability/test_concurrency.py tests/reliability/test_interrupts.py tests/reliability/test_bits.py
    unset PYTHONPATH OMP_NUM_THREADS
}

clang_cl() {
    sh tests/reliability/need.sh clang clang
    for option in -mavx2 -mfma -mavx512f -mavx512dq -mavx512vl -mavx512bw /clang:-mprefer-vector-width=512 /clang:-O3 /clang:-ffp-contract=off; do
        command clang --driver-mode=cl --target=x86_64-pc-windows-msvc -Werror "$option" -c csrc/runtime/pool.cpp '-###' >build/compilers/cl.log 2>&1 &&
            ! grep -E "unknown argument|unused" build/compilers/cl.log || { cat build/compilers/cl.log; exit 1; }
    done
}

# Longer vectors would not be aligned on the stack (GCC's bug 54412).
mingw() {
    sh tests/reliability/need.sh x86_64-w64-mingw32-g++-posix g++-mingw-w64-x86-64-posix
    configure mingw -DCMAKE_SYSTEM_NAME=Windows -DCMAKE_SYSTEM_PROCESSOR=AMD64 -DCMAKE_CXX_COMPILER=x86_64-w64-mingw32-g++-posix \
        $smallest -DCMAKE_EXE_LINKER_FLAGS=-static
    "$CMAKE" --build $build
    if command -v wine >/dev/null; then
        # Not below the repository: the folder has a link to /, which a build of the source distribution would follow.
        export WINEPREFIX="$(mktemp -d)" WINEDEBUG=-all
        trap 'wineserver -k || true; wineserver -w || true; rm -rf "$WINEPREFIX"' EXIT
        wine $build/fwcrf_answers.exe 2 >$build/answers.txt
        "$PYTHON" tests/reliability/compare_answers.py $build/answers.txt
        wine $build/fwcrf_driver.exe 2000 1
        wine $build/fwcrf_regions.exe
    else
        echo "wine is not installed: $build/fwcrf_driver.exe is compiled and not run"
    fi
}

# Zig's Clang brings the headers and stubs of macOS. Not optimised: only errors are looked for.
macos() {
    zig=$(pwd)/build/compilers/zig
    [ -d "$zig" ] || "$PYTHON" -m pip install --quiet --target "$zig" ziglang==0.17.0
    configure macos -DCMAKE_SYSTEM_NAME=Darwin -DCMAKE_SYSTEM_PROCESSOR=arm64 "-DCMAKE_CXX_COMPILER=$zig/ziglang/zig;c++" \
        -DCMAKE_CXX_COMPILER_TARGET=aarch64-macos.11.0 -DCMAKE_OSX_SYSROOT= -DCMAKE_OSX_DEPLOYMENT_TARGET= \
        -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-O0 -fno-sanitize=undefined"
    "$CMAKE" --build $build
}

mkdir -p build/compilers
for part in ${*:-threads clang clang-cl mingw macos}; do
    case $part in
    threads | clang | mingw | macos) $part ;;
    clang-cl) clang_cl ;;
    *) echo "$part is no part; expected threads, clang, clang-cl, mingw or macos" >&2 && exit 2 ;;
    esac
done
