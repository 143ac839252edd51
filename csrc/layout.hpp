// Between a network's layout, channel after channel, and the library's, pixel after pixel.
#pragma once

#include <cstdint>

namespace fwcrf {

// out[b][j][i] = x[b][i][j], for (batch, rows, columns).
template <typename T>
void transpose(const T* x, std::int64_t batch, std::int64_t rows, std::int64_t columns, T* out, int threads);

}  // namespace fwcrf
