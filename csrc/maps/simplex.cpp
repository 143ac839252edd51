// The maps of simplex_rows.hpp for whole arrays.
#include "maps/simplex_rows.hpp"

#include "bind/functions.hpp"
#include "runtime/parallel.hpp"
#include "runtime/scratch.hpp"

namespace fwcrf::FWCRF_ISA {

// Padded copies, for rows shorter than a vector and for the last rows if they are fewer than a group.
template <typename T, typename Rule> struct Copies {
    static constexpr int W = kLanes<T>;
    const SimplexArgs<T>& a;
    const std::int64_t stride;  // length of a padded row
    T* const memory;            // for x, p and out
    bool clear = false;

    void apply(std::int64_t first, std::int64_t count, T* scratch) {
        const std::int64_t whole = W * stride;
        T *const x = memory, *const p = x + whole, *const out = p + whole;
        if (!clear) {
            // Padding gets no weight: p = 0 for a derivative, else minus infinity.
            const T pad = a.p ? T(0) : -kInfinity<T>;
            for (std::int64_t i = 0; i < whole; ++i) x[i] = pad, p[i] = T(0);
            clear = true;
        }
        const std::int64_t from = first * a.length;
        for (std::int64_t r = 0; r < count; ++r)
            for (std::int64_t i = 0; i < a.length; ++i) x[r * stride + i] = a.scale * a.x[from + r * a.length + i];
        for (std::int64_t r = 0; a.p && r < count; ++r)
            for (std::int64_t i = 0; i < a.length; ++i) p[r * stride + i] = a.p[from + r * a.length + i];
        Rule::apply(x, p, out, stride, T(1), scratch);
        for (std::int64_t r = 0; r < count; ++r)
            for (std::int64_t i = 0; i < a.length; ++i) a.out[from + r * a.length + i] = out[r * stride + i];
    }
};

template <typename T, typename Rule> static void map_rows(const SimplexArgs<T>& a) {
    constexpr int W = kLanes<T>;
    const std::int64_t groups = (a.n + W - 1) / W;
    const std::int64_t stride = a.length < W ? W : a.length, copies = 3 * W * stride;
    const std::int64_t each = (copies + Rule::scratch(stride) + 15) / 16 * 16;
    thread_local Scratch scratch;
    T* const memory = scratch.get<T>(a.threads * each);
    for_each(a.threads, a.threads, [&](std::int64_t part) {
        const Range range = share(groups, static_cast<int>(part), a.threads);
        T *const own = memory + part * each, *const block = own + copies;
        Copies<T, Rule> staged{a, stride, own};
        for (std::int64_t group = range.begin; group < range.end; ++group) {
            const std::int64_t first = group * W, left = a.n - first;
            if (left < W || a.length < stride) {
                staged.apply(first, left < W ? left : W, block);
                continue;
            }
            const std::int64_t at = first * a.length;
            Rule::apply(a.x + at, a.p ? a.p + at : nullptr, a.out + at, a.length, a.scale, block);
        }
    });
    scratch.trim();
}

template <typename T> void project(const SimplexArgs<T>& a) { map_rows<T, Project<T>>(a); }
template <typename T> void project_derivative(const SimplexArgs<T>& a) { map_rows<T, ProjectDerivative<T>>(a); }
template <typename T> void softmax(const SimplexArgs<T>& a) { map_rows<T, Softmax<T>>(a); }
template <typename T> void softmax_derivative(const SimplexArgs<T>& a) { map_rows<T, SoftmaxDerivative<T>>(a); }

FWCRF_INSTANTIATE(project)
FWCRF_INSTANTIATE(project_derivative)
FWCRF_INSTANTIATE(softmax)
FWCRF_INSTANTIATE(softmax_derivative)

}  // namespace fwcrf::FWCRF_ISA
