// Points to lattice simplices, a block at a time.
//
// Compiled without floating-point contraction: the torch engine does the same operations in the
// same order, so both engines make the same decision for a point on the border of two simplices.
#include "kernels.hpp"
#include "vectors.hpp"

namespace fwcrf::FWCRF_ISA {

// Adding 1.5 * 2^52 rounds half to even, as torch.round does, for |v| < 2^51; the low bits of the
// sum are then the integer itself.
constexpr double kMagic = 6755399441055744.0;
constexpr std::int64_t kMagicBits = 0x4338000000000000;

using Real = Vec<double>;
using Integer = Vec<std::int64_t>;

static inline Real splat(double v) { return v - Real{}; }
static inline Real where(Integer mask, Real v) {
    return reinterpret_cast<Real>(mask & reinterpret_cast<Integer>(v));
}

// To the nearest float where that is asked for. Sums and products of two floats, rounded from double, are
// what float arithmetic itself would give.
template <bool Single> static inline Real rounded(Real v) {
    if constexpr (Single) {
        typedef float Floats __attribute__((vector_size(kVectorBytes / 2)));
        return __builtin_convertvector(__builtin_convertvector(v, Floats), Real);
    }
    return v;
}

static inline Integer integer(Real v) { return reinterpret_cast<Integer>(v + kMagic) - kMagicBits; }

// D is the dimension where it is known to the compiler, 0 otherwise.
template <int D, bool Single, typename T>
static void embed(const T* features, int count, int dim, const double* scale, Embedding& out) {
    constexpr int W = kLanes<double>;
    constexpr int most = (D ? D : kMaxDim) + 1;
    const int d = D ? D : dim;
    const int corners = d + 1;
    const Real inverse = rounded<Single>(splat(1.0 / corners)), size = splat(corners), one = splat(1.0), zero{};

    for (int first = 0; first < count; first += W) {
        Real elevated[most], quotient[most], residual[most], rank[most];
        Real sum{}, total{};
        // Without a loop the compiler knows how far apart features are.
#pragma GCC unroll 8
        for (int j = d; j > 0; --j) {
            Real column{};
            if (first + W <= count) {
                for (int l = 0; l < W; ++l) column[l] = features[(first + l) * d + j - 1];
            } else {
                for (int l = 0; first + l < count; ++l) column[l] = features[(first + l) * d + j - 1];
            }
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
            // The rounded point need not lie on the hyperplane: the extreme residuals give way.
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
                sorted = reinterpret_cast<Real>(reinterpret_cast<Integer>(sorted) |
                                                reinterpret_cast<Integer>(where(rank[i] == want, residual[i])));
            store(&out.weight[m][first], sorted - previous);
            previous = sorted;
        }
        // Corner 0 takes what is left: smallest minus largest residual, plus one.
        store(&out.weight[0][first], (load(&out.weight[0][first]) - previous) + one);
    }
}

template <bool Single, typename T>
static void embed_any(const T* features, int count, int d, const double* scale, Embedding& out) {
    switch (d) {
    case 2: return embed<2, Single>(features, count, d, scale, out);
    case 3: return embed<3, Single>(features, count, d, scale, out);
    case 5: return embed<5, Single>(features, count, d, scale, out);
    case 6: return embed<6, Single>(features, count, d, scale, out);
    default: return embed<0, Single>(features, count, d, scale, out);
    }
}

// Vectors run through the flat array; lane j of the k-th vector of a period is feature (kW + j) % d.
template <typename T>
static bool bounds(const T* features, std::int64_t n, int d, double* low, double* high) {
    constexpr int W = kLanes<T>;
    const std::int64_t total = n * d, period = static_cast<std::int64_t>(d) * W;
    Vec<T> least[kMaxDim], most[kMaxDim];
    Vec<T> bad{};  // 0 * x is not a number unless x is finite
    const std::int64_t whole = total / period * period;
    for (int i = 0; i < d; ++i) {
        low[i] = high[i] = static_cast<double>(features[i]);
    }
    if (whole) {
        for (int k = 0; k < d; ++k) least[k] = most[k] = load(features + k * W);
        for (std::int64_t p = 0; p < whole; p += period) {
            for (int k = 0; k < d; ++k) {
                const Vec<T> v = load(features + p + k * W);
                least[k] = v < least[k] ? v : least[k];
                most[k] = v > most[k] ? v : most[k];
                bad += v * T(0);
            }
        }
        for (std::int64_t p = 0; p < period; ++p) {
            const int i = static_cast<int>(p % d);
            const double lo = least[p / W][p % W], hi = most[p / W][p % W];
            if (lo < low[i]) low[i] = lo;
            if (hi > high[i]) high[i] = hi;
        }
    }
    T rest = 0;
    for (int j = 0; j < W; ++j) rest += bad[j];
    for (std::int64_t p = whole; p < total; ++p) {
        const int i = static_cast<int>(p % d);
        const double v = features[p];
        if (v < low[i]) low[i] = v;
        if (v > high[i]) high[i] = v;
        rest += features[p] * T(0);
    }
    return rest == rest;
}

void embed_f32(const float* features, int count, int d, const double* scale, Embedding& out) {
    embed_any<false>(features, count, d, scale, out);
}
void embed_f64(const double* features, int count, int d, const double* scale, Embedding& out) {
    embed_any<false>(features, count, d, scale, out);
}
void embed_single(const float* features, int count, int d, const double* scale, Embedding& out) {
    embed_any<true>(features, count, d, scale, out);
}
bool bounds_f32(const float* features, std::int64_t n, int d, double* low, double* high) {
    return bounds(features, n, d, low, high);
}
bool bounds_f64(const double* features, std::int64_t n, int d, double* low, double* high) {
    return bounds(features, n, d, low, high);
}

}  // namespace fwcrf::FWCRF_ISA
