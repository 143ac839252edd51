#include "layout.hpp"

namespace fwcrf {

// Tiles of both arrays that fit into the first-level cache together.
constexpr std::int64_t kTile = 32;

template <typename T>
void transpose(const T* x, std::int64_t batch, std::int64_t rows, std::int64_t columns, T* out, int threads) {
    const std::int64_t down = (rows + kTile - 1) / kTile, across = (columns + kTile - 1) / kTile;
    (void)threads;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(threads)
#endif
    for (std::int64_t tile = 0; tile < batch * down * across; ++tile) {
        // Along the longer side within a stretch of memory of either array.
        const bool wide = columns >= rows;
        const std::int64_t within = tile % (down * across), image = tile / (down * across);
        const std::int64_t i0 = (wide ? within % down : within / across) * kTile;
        const std::int64_t j0 = (wide ? within / down : within % across) * kTile;
        const std::int64_t i1 = i0 + kTile < rows ? i0 + kTile : rows;
        const std::int64_t j1 = j0 + kTile < columns ? j0 + kTile : columns;
        const T* from = x + image * rows * columns;
        T* to = out + image * rows * columns;
        for (std::int64_t i = i0; i < i1; ++i)
            for (std::int64_t j = j0; j < j1; ++j) to[j * rows + i] = from[i * columns + j];
    }
}

template void transpose(const float*, std::int64_t, std::int64_t, std::int64_t, float*, int);
template void transpose(const double*, std::int64_t, std::int64_t, std::int64_t, double*, int);

}  // namespace fwcrf
