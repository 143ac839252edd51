// From points to lattice simplices, a block at a time.
//
// Compiled without floating-point contraction: the torch engine does the same operations in the
// same order, so both engines make the same decision for a point on the border of two simplices.
#include "bind/functions.hpp"
#include "simd/vectors.hpp"

namespace fwcrf::FWCRF_ISA {

// Adding 1.5 * 2^52 rounds half to even, as torch.round does, for |v| < 2^51; the low bits of the
// sum are then the integer itself.
constexpr double kMagic = 6755399441055744.0;
constexpr std::int64_t kMagicBits = 0x4338000000000000;

using Real = Vec<double>;
using Integer = Vec<std::int64_t>;

static inline Real splat(double v) { return v - Real{}; }
static inline Real where(Integer mask, Real v) { return from_bits<double>(mask & to_bits<double>(v)); }

// To the nearest float if Single. Sums and products of two floats, rounded from double, equal float arithmetic.
template <bool Single> static inline Real rounded(Real v) {
    if constexpr (Single) return rounded_to_float(v);
    else return v;
}

static inline Integer integer(Real v) { return to_bits<double>(v + kMagic) - kMagicBits; }

// D is the dimension if it is known at compile time, else 0.
template <int D, bool Single, typename T>
static void embed_block(const T* features, int count, int dim, const double* scale, Embedding& out) {
    constexpr int W = kLanes<double>;
    constexpr int most = (D ? D : kMaxDim) + 1;
    const int d = D ? D : dim;
    const int corners = d + 1;
    const Real inverse = rounded<Single>(splat(1.0 / corners)), size = splat(corners), one = splat(1.0), zero{};

    for (int first = 0; first < count; first += W) {
        Real elevated[most], quotient[most], residual[most], rank[most];
        Real sum{}, total{};
        // Unrolled, so that the compiler knows the distance between features.
#pragma GCC unroll 8
        for (int j = d; j > 0; --j) {
            const auto feature = [&](int l) -> double { return features[(first + l) * d + j - 1]; };
            const Real column = first + W <= count
                                    ? lanes_of<Real>(feature)
                                    : lanes_of<Real>([&](int l) { return first + l < count ? feature(l) : 0.0; });
            const Real c = rounded<Single>(column * scale[j - 1]);
            elevated[j] = rounded<Single>(sum - rounded<Single>(static_cast<double>(j) * c));
            sum = rounded<Single>(sum + c);
        }
        elevated[0] = sum;
        for (int i = 0; i < corners; ++i) {
            quotient[i] = (rounded<Single>(elevated[i] * inverse) + kMagic) - kMagic;
            residual[i] = rounded<Single>(elevated[i] - quotient[i] * size);
            rank[i] = zero;
            total += quotient[i];
        }
        for (int i = 0; i < corners; ++i) {
            for (int j = i + 1; j < corners; ++j) {
                const Real less = where(residual[i] < residual[j], one);
                rank[i] += less;
                rank[j] += one - less;
            }
        }
        Integer low{}, high{};
        for (int i = 0; i < corners; ++i) {
            // The rounded point need not lie on the hyperplane: the extreme residuals move it there.
            const Real r = rank[i] + total;
            const Real carry = where(r < zero, one) - where(r > splat(d), one);
            rank[i] = r + carry * size;
            quotient[i] += carry;
            residual[i] = (elevated[i] - quotient[i] * size) * inverse;
            store(&out.quotient[i][first], integer(quotient[i]));
            // The smallest residual leads from corner 0 to corner 1, the largest back to corner 0.
            const Integer place = d - integer(rank[i]);
            if (most <= kPerOrderWord) {
                low |= i << kOrderBits * place;
            } else {
                const Integer late = place >= kPerOrderWord;
                low |= ~late & (i << (kOrderBits * (place & ~late)));
                high |= late & (i << (kOrderBits * ((place - kPerOrderWord) & late)));
            }
        }
        store(&out.order[0][first], low);
        store(&out.order[1][first], high);
        Real previous{};
        for (int m = 0; m < corners; ++m) {
            const Real want = splat(d - m);
            Real sorted{};
            for (int i = 0; i < corners; ++i)
                sorted =
                    from_bits<double>(to_bits<double>(sorted) | to_bits<double>(where(rank[i] == want, residual[i])));
            store(&out.weight[m][first], sorted - previous);
            previous = sorted;
        }
        // Corner 0 takes the rest: smallest minus largest residual, plus one.
        store(&out.weight[0][first], (load(&out.weight[0][first]) - previous) + one);
    }
}

template <bool Single, typename T>
static void embed_any(const T* features, int count, int d, const double* scale, Embedding& out) {
    switch (d) {
    case 2: return embed_block<2, Single>(features, count, d, scale, out);
    case 3: return embed_block<3, Single>(features, count, d, scale, out);
    case 5: return embed_block<5, Single>(features, count, d, scale, out);
    case 6: return embed_block<6, Single>(features, count, d, scale, out);
    default: return embed_block<0, Single>(features, count, d, scale, out);
    }
}

template <typename T>
void embed(const T* features, int count, int d, const double* scale, bool single, Embedding& out) {
    if constexpr (kSingle<T>)
        if (single) return embed_any<true>(features, count, d, scale, out);
    (void)single;
    embed_any<false>(features, count, d, scale, out);
}

// Vectors run through the flat array; lane j of the k-th vector of a period is feature (kW + j) % d.
template <typename T> bool feature_bounds(const T* features, std::int64_t n, int d, double* low, double* high) {
    constexpr int W = kLanes<T>;
    const std::int64_t entries = n * d, period = static_cast<std::int64_t>(d) * W;
    Vec<T> least[kMaxDim], most[kMaxDim];
    Vec<T> bad{};  // 0 * x is NaN unless x is finite
    const std::int64_t whole = entries / period * period;
    for (int i = 0; i < d; ++i) {
        low[i] = high[i] = static_cast<double>(features[i]);
    }
    if (whole) {
        for (int k = 0; k < d; ++k) least[k] = most[k] = load(features + k * W);
        for (std::int64_t p = 0; p < whole; p += period) {
            for (int k = 0; k < d; ++k) {
                const Vec<T> v = load(features + p + k * W);
                least[k] = select(v < least[k], v, least[k]);
                most[k] = select(v > most[k], v, most[k]);
                bad += v * T(0);
            }
        }
        for (std::int64_t p = 0; p < period; ++p) {
            const int i = static_cast<int>(p % d);
            const double lo = lane(least[p / W], p % W), hi = lane(most[p / W], p % W);
            if (lo < low[i]) low[i] = lo;
            if (hi > high[i]) high[i] = hi;
        }
    }
    T rest = total<T>(bad);
    for (std::int64_t p = whole; p < entries; ++p) {
        const int i = static_cast<int>(p % d);
        const double v = features[p];
        if (v < low[i]) low[i] = v;
        if (v > high[i]) high[i] = v;
        rest += features[p] * T(0);
    }
    return rest == rest;
}

FWCRF_INSTANTIATE(embed)
FWCRF_INSTANTIATE(feature_bounds)

}  // namespace fwcrf::FWCRF_ISA
