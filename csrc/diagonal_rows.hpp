// What a lattice has on the diagonal, of as many points at a time as a vector has lanes.
#pragma once

#include "kernels.hpp"
#include "vectors.hpp"

#include <cstring>
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace fwcrf::FWCRF_ISA {

// Sixteen bytes from each of as many places as fit into a vector.
template <typename T> static inline Vec<T> sixteens(const std::uint64_t* table, const std::int32_t* at) {
    const auto one = [&](int q) { return table + 2 * std::int64_t{at[q]}; };
#if defined(__AVX512F__)
    const auto part = [&](int q) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(one(q))); };
    const __m512i low = _mm512_inserti64x2(_mm512_castsi128_si512(part(0)), part(1), 1);
    return (Vec<T>)_mm512_inserti64x2(_mm512_inserti64x2(low, part(2), 2), part(3), 3);
#elif defined(__AVX2__)
    const auto part = [&](int q) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(one(q))); };
    return (Vec<T>)_mm256_inserti128_si256(_mm256_castsi128_si256(part(0)), part(1), 1);
#else
    Vec<T> v;
    std::memcpy(&v, one(0), sizeof(v));
    return v;
#endif
}

template <int C, typename T> struct DiagonalRows {
    using Integer = decltype(Vec<T>{} > Vec<T>{});
    static constexpr int W = kLanes<T>;
    static constexpr int kBits = 8 * sizeof(T);
    static constexpr int kParts = 64 / kBits;       // lanes that a word of `open` takes
    static constexpr int kCorners = W / (2 * kParts);  // whose words fit into a vector
    static constexpr int kPadded = (C + kCorners - 1) / kCorners * kCorners;

    Integer down[kPadded][kParts], up[kPadded][kParts], axis[C];
    Vec<T> weight[C];

    // What chains of neighbours count.
    struct Taps {
        T power[C + 1] = {T(1)}, centre;
        Taps(double tap, double identity) : centre(static_cast<T>(1.0 + identity)) {
            for (int s = 1; s <= C; ++s) power[s] = power[s - 1] * static_cast<T>(tap);
        }
    };

    // The points from i on, up to `end`; lanes past it repeat the first. `open` are the OpenSets.
    DiagonalRows(const DiagonalArgs<T>& a, const std::uint64_t* open, std::int64_t i, std::int64_t end) {
        std::int64_t point[W];
        for (int l = 0; l < W; ++l) point[l] = i + l < end ? i + l : i;
        Integer order;
        static_assert(kTabled * kOrderBits < 32, "the order of all axes fits into a lane");
        for (int l = 0; l < W; ++l) order[l] = static_cast<std::int32_t>(a.order[point[l]]);
        for (int k = 0; k < C; ++k) axis[k] = 1 << ((order >> kOrderBits * k) & 31);
        for (int k = 0; k < kPadded; k += kCorners) {
            Vec<T> square[W];
            for (int l = 0; l < W; ++l) {
                std::int32_t at[kCorners];
                for (int q = 0; q < kCorners; ++q) at[q] = a.index[point[l] * C + (k + q < C ? k + q : 0)];
                square[l] = sixteens<T>(open, at);
            }
            transpose<T>(square);
            for (int q = 0; q < kCorners; ++q)
                for (int p = 0; p < kParts; ++p) {
                    down[k + q][p] = (Integer)square[2 * q * kParts + p];
                    up[k + q][p] = (Integer)square[(2 * q + 1) * kParts + p];
                }
        }
        if constexpr (C <= W) {
            // Whole vectors, where rows follow one another and others come after them.
            if (point[W - 1] == point[0] + W - 1 && point[W - 1] * C + W <= a.n * C) {
                Vec<T> square[W];
                for (int l = 0; l < W; ++l) square[l] = load(a.weight + point[l] * C);
                transpose<T>(square);
                for (int k = 0; k < C; ++k) weight[k] = square[k];
                return;
            }
        }
        for (int l = 0; l < W; ++l)
            for (int k = 0; k < C; ++k) weight[k][l] = a.weight[point[l] * C + k];
    }

    // Whether sets of axes are among those of the words.
    static inline Integer among(const Integer (&words)[kParts], Integer axes) {
        if constexpr (kParts == 1) return (words[0] >> axes) & 1;
        else return ((axes >= kBits ? words[1] : words[0]) >> (axes & (kBits - 1))) & 1;
    }

    static inline Vec<T> number(Integer small) {
        if constexpr (sizeof(T) == 4) return __builtin_convertvector(small, Vec<T>);
        // An integer below 2^52 in the low bits of 2^52, read as a double.
        else return (Vec<T>)(small | 0x4330000000000000) - 4503599627370496.0;
    }

    // The quadratic form, and its derivatives, added to 0, if they are asked for.
    template <bool Slopes> Vec<T> sums(const Taps& taps, Vec<T> (&slope)[C]) const {
        Vec<T> sum{};
        // Without loops the compiler knows which corner is which.
#pragma GCC unroll 8
        for (int k = 0; k < C; ++k) {
            Vec<T> reached = taps.centre * weight[k];
            if (Slopes) slope[k] += reached;
            Integer axes{};
            // s steps up the axes that follow corner k lead to corner k + s, and down again.
#pragma GCC unroll 8
            for (int s = 1; s <= C; ++s) {
                const int to = (k + s) % C;
                axes |= axis[(k + s - 1) % C];
                // The corner after this one is there, both ways.
                const Vec<T> chains = s == 1 ? T(2) * taps.power[1] - Vec<T>{}
                                             : taps.power[s] * number(among(up[k], axes) + among(down[to], axes));
                reached += chains * weight[to];
                if (Slopes) slope[to] += chains * weight[k];
            }
            sum += weight[k] * reached;
            if (Slopes) slope[k] += reached;
        }
        return sum;
    }
};

}  // namespace fwcrf::FWCRF_ISA
