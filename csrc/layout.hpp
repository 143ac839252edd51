// Between a network's layout, channel after channel, and the library's, pixel after pixel; logarithms on the way, and labels.
#pragma once

#include "kernels.hpp"

namespace fwcrf {

// See TurnArgs.
template <typename T> void transpose(const TurnArgs<T>& a) {
    if constexpr (sizeof(T) == 4) kernels().transpose_f32(a);
    else kernels().transpose_f64(a);
}
template <typename T> void log_line(const TurnArgs<T>& a) {
    if constexpr (sizeof(T) == 4) kernels().log_line_f32(a);
    else kernels().log_line_f64(a);
}
template <typename T> void log_line_derivative(const TurnArgs<T>& a) {
    if constexpr (sizeof(T) == 4) kernels().log_line_derivative_f32(a);
    else kernels().log_line_derivative_f64(a);
}

// out = -x; false if a value is not finite.
template <typename T> bool negative(const T* x, std::int64_t n, T* out, int threads) {
    if constexpr (sizeof(T) == 4) return kernels().negative_f32(x, n, out, threads);
    else return kernels().negative_f64(x, n, out, threads);
}

// The column of the largest entry of each row of (n, length), the first of several; length is at least 1.
template <typename T>
void largest(const T* x, std::int64_t n, std::int64_t length, std::int64_t* out, int threads) {
    if constexpr (sizeof(T) == 4) kernels().largest_f32(x, n, length, out, threads);
    else kernels().largest_f64(x, n, length, out, threads);
}

}  // namespace fwcrf
