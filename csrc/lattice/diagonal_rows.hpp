// Diagonal entries of a lattice kernel, for as many points at a time as a vector has lanes.
#pragma once

#include "lattice/arguments.hpp"
#include "simd/vectors.hpp"

namespace fwcrf::FWCRF_ISA {

template <int C, typename T> struct DiagonalRows {
    using Integer = Int<T>;
    static constexpr int W = kLanes<T>;
    static constexpr int kBits = 8 * sizeof(T);
    static constexpr int kParts = 64 / kBits;          // lanes per word of `open`
    static constexpr int kCorners = W / (2 * kParts);  // corners whose words fit into a vector
    static constexpr int kPadded = (C + kCorners - 1) / kCorners * kCorners;

    Integer down[kPadded][kParts], up[kPadded][kParts], axis[C];
    Vec<T> weight[C];

    // The weight of a chain of s neighbours: tap^s.
    struct ChainWeights {
        T power[C + 1] = {T(1)}, centre;
        ChainWeights(double tap, double identity) : centre(static_cast<T>(1.0 + identity)) {
            for (int s = 1; s <= C; ++s) power[s] = power[s - 1] * static_cast<T>(tap);
        }
    };

    // The points from i to `end`; the lanes past `end` repeat the first point. `open` comes from OpenSets.
    DiagonalRows(const DiagonalArgs<T>& a, const std::uint64_t* open, std::int64_t i, std::int64_t end) {
        std::int64_t point[W];
        for (int l = 0; l < W; ++l) point[l] = i + l < end ? i + l : i;
        static_assert(kTabled * kOrderBits < 32, "the order of all axes fits into a lane");
        const Integer order = lanes_of<Integer>([&](int l) { return static_cast<std::int32_t>(a.order[point[l]]); });
        for (int k = 0; k < C; ++k) axis[k] = 1 << ((order >> kOrderBits * k) & 31);
        for (int k = 0; k < kPadded; k += kCorners) {
            Vec<T> square[W];
            for (int l = 0; l < W; ++l) {
                std::int32_t at[kCorners];
                for (int q = 0; q < kCorners; ++q) at[q] = a.index[point[l] * C + (k + q < C ? k + q : 0)];
                square[l] = load_sixteens<T>(open, at);
            }
            transpose<T>(square);
            for (int q = 0; q < kCorners; ++q)
                for (int p = 0; p < kParts; ++p) {
                    down[k + q][p] = to_bits<T>(square[2 * q * kParts + p]);
                    up[k + q][p] = to_bits<T>(square[(2 * q + 1) * kParts + p]);
                }
        }
        if constexpr (C <= W) {
            // Whole vectors, if the rows are consecutive and the array goes on after them.
            if (point[W - 1] == point[0] + W - 1 && point[W - 1] * C + W <= a.n * C) {
                Vec<T> square[W];
                for (int l = 0; l < W; ++l) square[l] = load(a.weight + point[l] * C);
                transpose<T>(square);
                for (int k = 0; k < C; ++k) weight[k] = square[k];
                return;
            }
        }
        for (int l = 0; l < W; ++l)
            for (int k = 0; k < C; ++k) set_lane(weight[k], l, a.weight[point[l] * C + k]);
    }

    // 1 if the set of axes is in the words, else 0.
    static inline Integer among(const Integer (&words)[kParts], Integer axes) {
        if constexpr (kParts == 1) return (words[0] >> axes) & 1;
        else return (select(axes >= kBits, words[1], words[0]) >> (axes & (kBits - 1))) & 1;
    }

    // The quadratic form; with Slopes its derivatives are added to `slope`, which must be 0.
    template <bool Slopes> Vec<T> sums(const ChainWeights& chain, Vec<T> (&slope)[C]) const {
        Vec<T> sum{};
        // Unrolled, so that every corner is known at compile time.
#pragma GCC unroll 8
        for (int k = 0; k < C; ++k) {
            Vec<T> reached = chain.centre * weight[k];
            if (Slopes) slope[k] += reached;
            Integer axes{};
            // s steps up the axes after corner k lead to corner k + s; s steps down lead back.
#pragma GCC unroll 8
            for (int s = 1; s <= C; ++s) {
                const int to = (k + s) % C;
                axes |= axis[(k + s - 1) % C];
                // The next corner exists, so both chains of one step do.
                const Vec<T> chains =
                    s == 1 ? T(2) * chain.power[1] - Vec<T>{}
                           : chain.power[s] * small_to_numbers<T>(among(up[k], axes) + among(down[to], axes));
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
