// Where the cases of the driver come from: a seed, or the bytes of a fuzzer that is guided by coverage.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>

struct Choices {
    std::uint64_t state;
    const std::uint8_t* bytes = nullptr;
    std::size_t left = 0;

    std::uint64_t next() {
        std::uint64_t z = (state += 0x9e3779b97f4a7c15ull);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }
    double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
    double normal() { return unit() + unit() + unit() + unit() - 2; }
    // The content of arrays: never from the bytes, which would be gone at once.
    int any(int low, int high) { return low + static_cast<int>(next() % static_cast<std::uint64_t>(high - low + 1)); }
    // A decision: from the bytes as long as there are some.
    int integer(int low, int high) {
        if (!left) return any(low, high);
        const auto range = static_cast<std::uint64_t>(high - low + 1);
        std::uint64_t word = 0;
        for (std::uint64_t most = 1; left && most < range; most <<= 8, --left) word = word << 8 | *bytes++;
        return low + static_cast<int>(word % range);
    }
    bool flag() { return integer(0, 1); }
};

// An array without any slack behind it.
template <typename T> struct Array {
    explicit Array(std::int64_t size) : size(size), data(new T[static_cast<std::size_t>(size)]) {}
    Array(std::int64_t size, T value) : Array(size) { std::fill_n(get(), size, value); }
    T* get() { return data.get(); }
    T& operator[](std::int64_t i) { return data[static_cast<std::size_t>(i)]; }
    bool finite() {
        for (std::int64_t i = 0; i < size; ++i)
            if (!std::isfinite(static_cast<double>((*this)[i]))) return false;
        return true;
    }
    std::int64_t size;
    std::unique_ptr<T[]> data;
};

// Finite numbers of one of several characters.
template <typename T> Array<T> numbers(Choices& c, std::int64_t size, double largest) {
    Array<T> values(size);
    const int kind = c.integer(0, 4);
    const double fixed = c.normal() * std::pow(10.0, c.any(-20, 20));
    for (std::int64_t i = 0; i < size; ++i) {
        double v = c.normal();
        if (kind == 1) v *= 255;
        if (kind == 2) v = fixed;
        if (kind == 3) v = c.any(-2, 2);
        if (kind == 4) v *= std::pow(10.0, c.any(-30, 30));
        values[i] = static_cast<T>(std::clamp(v, -largest, largest));
    }
    return values;
}

[[noreturn]] inline void found(const char* what) {
    std::fprintf(stderr, "found: %s\n", what);
    std::abort();
}

// Whether an entry of x has become NaN.
template <typename T> bool spoil(Choices& c, Array<T>& x) {
    const bool spoilt = c.integer(0, 7) == 0;
    if (spoilt) x[c.any(0, static_cast<int>(x.size) - 1)] = std::numeric_limits<T>::quiet_NaN();
    return spoilt;
}
