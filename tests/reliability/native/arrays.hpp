// Rows, axes and blocks of memory: cases of the driver.
#pragma once

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "bind/dispatch.hpp"
#include "choices.hpp"
#include "maps/features.hpp"
#include "runtime/blocks.hpp"
#include "steps/select.hpp"

namespace fwcrf {

template <typename T> void simplex(Choices& c) {
    const std::int64_t n = c.integer(0, 20), length = c.integer(1, c.integer(0, 9) ? 24 : 300);
    auto v = numbers<T>(c, n * length, 1e15);
    if (c.integer(0, 3) == 0)
        for (std::int64_t i = 0; i < n * length; ++i)
            if (c.any(0, 4) == 0 && i % length) v[i] = -std::numeric_limits<T>::infinity();
    Array<T> p(n * length), d(n * length);
    const auto scale = static_cast<T>(c.flag() ? 1.0 : c.normal() * 10);
    const T used = std::abs(scale);  // with a negative one, -inf would be the largest
    const int threads = c.integer(1, 2);
    const bool soft = c.flag();
    const SimplexArgs<T> map{v.get(), nullptr, p.get(), n, length, used, threads};
    auto g = numbers<T>(c, n * length, 1e6);
    const SimplexArgs<T> derivative{g.get(), p.get(), d.get(), n, length, used, threads};
    (soft ? native<T>().softmax : native<T>().project)(map);
    (soft ? native<T>().softmax_derivative : native<T>().project_derivative)(derivative);
    if (used == 0) return;
    if (!p.finite() || !d.finite()) found("a map onto the simplex is not finite");
    for (std::int64_t row = 0; row < n; ++row) {
        double sum = 0;
        for (std::int64_t i = 0; i < length; ++i) sum += p[row * length + i];
        if (std::abs(sum - 1) > 1e-3) found("a row does not sum to 1");
    }
}

// Rows times two matrices side by side, and both outer products, beside plain loops.
template <typename T> void wide_rows(Choices& c) {
    const std::int64_t row = 3 * native<T>().lanes(), half = row / 2;
    const std::int64_t rows = c.integer(1, static_cast<int>(half)), count = c.integer(1, static_cast<int>(half));
    auto left = numbers<T>(c, half * half, 1), right = numbers<T>(c, half * row, 1);
    Array<T> out(rows * row);
    native<T>().wide_products({left.get(), right.get(), rows, count, out.get()});
    Array<double> first(rows * half), second(rows * half);
    std::fill_n(first.get(), rows * half, 0.0);
    std::fill_n(second.get(), rows * half, 0.0);
    native<T>().wide_outers({left.get(), right.get(), rows, count, nullptr}, first.get(), second.get());
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t e = 0; e < row; ++e) {
            double product = 0, outer = 0;
            for (std::int64_t s = 0; s < count; ++s) {
                product += static_cast<double>(left[i * half + s]) * right[s * row + e];
                outer += static_cast<double>(left[s * half + i]) * right[s * row + e];
            }
            const double of_outer = e < half ? first[i * half + e] : second[i * half + e - half];
            if (std::abs(out[i * row + e] - product) > 1e-4 * count) found("another product of wide rows");
            if (std::abs(of_outer - outer) > 1e-4 * count) found("another outer product of wide rows");
        }
}

// Transposes with a logarithm, its derivative, and the argmax of rows, with and without a transpose.
template <typename T>
void logarithms(Choices& c, std::int64_t batch, std::int64_t rows, std::int64_t columns, int threads) {
    const std::int64_t size = batch * rows * columns;
    Array<T> x(size), logs(size), slopes(size), turned(size);
    for (std::int64_t i = 0; i < size; ++i) x[i] = static_cast<T>(c.any(0, 3) ? c.unit() : 0.0);
    auto g = numbers<T>(c, size, 1e3);
    const auto epsilon = static_cast<T>(c.flag() ? 1e-6 : 0.5);
    native<T>().transpose_log({x.get(), nullptr, logs.get(), batch, rows, columns, 1 - epsilon, epsilon, threads});
    if (!logs.finite()) found("a logarithm is not finite");
    native<T>().transpose_log_derivative(
        {g.get(), x.get(), slopes.get(), batch, rows, columns, 1 - epsilon, epsilon, threads});
    if (!slopes.finite()) found("the derivative of a logarithm is not finite");
    auto y = numbers<T>(c, size, 1);
    for (std::int64_t i = 0; i < size; ++i) y[i] = std::abs(y[i]);
    TransposeArgs<T> blend{x.get(), nullptr, logs.get(), batch, rows, columns, 1 - epsilon, epsilon, threads};
    blend.blended = y.get();
    blend.share = static_cast<T>(c.unit());
    native<T>().transpose_log(blend);
    if (!logs.finite()) found("the logarithm of a blend is not finite");
    blend.x = g.get(), blend.beside = x.get(), blend.out = slopes.get();
    BlendSlopes<T> of_blend{turned.get(), 0};
    native<T>().blend_log_derivative(blend, of_blend);
    if (!slopes.finite() || !turned.finite() || !std::isfinite(of_blend.share))
        found("the derivative of the logarithm of a blend is not finite");
    if (columns <= kMostSums) {
        Array<double> sums(columns + 1);
        std::fill_n(sums.get(), columns + 1, 0.0);
        native<T>().transpose_and_sum({g.get(), x.get(), turned.get(), batch, rows, columns, T(2), T(0), threads},
                                      sums.get());
        double beside = 0, size_of_terms = 0;
        for (std::int64_t b = 0; b < batch; ++b)
            for (std::int64_t i = 0; i < rows; ++i)
                for (std::int64_t j = 0; j < columns; ++j) {
                    const double value = g[(b * rows + i) * columns + j], other = x[(b * columns + j) * rows + i];
                    beside += value * other;
                    size_of_terms += std::abs(value * other);
                    if (turned[(b * columns + j) * rows + i] != static_cast<T>(2 * value)) found("not transposed");
                }
        if (std::abs(sums[columns] - beside) > 1e-4 * size_of_terms) found("another sum of products");
    }
    if (!columns) return;
    if (size && c.integer(0, 3) == 0) x[c.any(0, static_cast<int>(size) - 1)] = std::numeric_limits<T>::quiet_NaN();
    Array<std::int64_t> largest(batch * rows), same(batch * rows);
    native<T>().argmax(x.get(), batch * rows, columns, largest.get(), threads);
    native<T>().transpose_array(
        {x.get(), nullptr, turned.get(), batch, rows, columns, T(1), T(0), threads, same.get()});
    for (std::int64_t i = 0; i < batch * rows; ++i) {
        std::int64_t first = 0;
        const T* const row = x.get() + i * columns;
        for (std::int64_t j = 1; j < columns && !std::isnan(row[first]); ++j)
            if (row[j] > row[first] || std::isnan(row[j])) first = j;
        if (largest[i] != first || same[i] != first) found("the argmax is another one");
    }
}

// A band with the arrays it points to.
template <typename T> struct Banded {
    Banded(Choices& c, std::int64_t rows, std::int64_t columns)
        : width(c.integer(1, static_cast<int>(columns))), first(rows), weight(numbers<T>(c, rows * width, 1)),
          band{rows, columns, width, first.get(), weight.get()} {
        for (std::int64_t j = 0; j < rows; ++j)
            first[j] = c.any(j ? first[j - 1] : 0, static_cast<int>(columns - width));
    }
    std::int64_t width;
    Array<std::int32_t> first;
    Array<T> weight;
    Band<T> band;
};

// Bands along the last axis of a grid and along another axis, compared with plain sums.
template <typename T> void shrunk(Choices& c) {
    const std::int64_t outer = c.integer(0, 3), columns = c.integer(1, 30), rows = c.integer(1, 30);
    const std::int64_t lanes = native<T>().lanes(), cell = lanes * c.integer(1, 4);
    const bool last = c.flag();
    const std::int64_t inner = last ? c.any(1, static_cast<int>(cell)) : 2 * cell, width = last ? cell : inner;
    Banded<T> banded(c, rows, columns);
    auto x = numbers<T>(c, outer * columns * inner, 1);
    Array<T> out(outer * rows * width);
    const BandArgs<T> args{x.get(), out.get(), outer, inner, width, banded.band, c.integer(1, 2)};
    last ? native<T>().shrink_lines(args) : native<T>().shrink_axis(args);
    for (std::int64_t o = 0; o < outer; ++o)
        for (std::int64_t j = 0; j < rows; ++j)
            for (std::int64_t k = 0; k < inner; ++k) {
                double sum = 0;
                for (std::int64_t t = 0; t < banded.width; ++t)
                    sum += double(banded.weight[j * banded.width + t]) *
                           x[(o * columns + banded.first[j] + t) * inner + k];
                if (std::abs(out[(o * rows + j) * width + k] - sum) > 1e-4) found("a band times x is not right");
            }
}

// Products of rows near each other, compared with plain sums.
template <typename T> void near_rows(Choices& c) {
    const std::int64_t outer = c.integer(0, 3), size = c.integer(1, 30), inner = c.integer(1, 9);
    const std::int64_t cell = c.integer(1, 40), labels = c.any(1, static_cast<int>(cell)), reach = c.integer(0, 12);
    auto left = numbers<T>(c, outer * size * inner * cell, 1), right = numbers<T>(c, outer * size * inner * cell, 1);
    Array<T> sums(size * size, T(0));
    native<T>().band_products(
        {left.get(), right.get(), outer, size, inner, cell, labels, reach, sums.get(), c.integer(1, 2)});
    for (std::int64_t i = 0; i < size; ++i)
        for (std::int64_t j = 0; j < size; ++j) {
            double sum = 0;
            for (std::int64_t k = 0; k < outer * inner; ++k)
                for (std::int64_t s = 0; s < labels; ++s) {
                    const std::int64_t at = k / inner * size * inner + k % inner;
                    sum += double(left[(at + i * inner) * cell + s]) * right[(at + j * inner) * cell + s];
                }
            if (std::abs(i - j) <= reach && std::abs(sums[i * size + j] - sum) > 1e-2)
                found("a product of near rows is not right");
        }
}

template <typename T> void grid(Choices& c) {
    const std::int64_t outer = c.integer(0, 4), length = c.integer(0, 30), inner = c.integer(0, 30);
    const std::int64_t radius = c.integer(0, 40);
    auto x = numbers<T>(c, outer * length * inner, 1e6), taps = numbers<T>(c, radius + 1, 1e3);
    Array<T> out(x.size), turned(x.size);
    const int threads = c.integer(1, 2);
    const AxisArgs<T> args{x.get(), out.get(), outer, length, inner, taps.get(), radius, threads};
    native<T>().filter_axis(args);
    if (!out.finite()) found("a filter along an axis is not finite");
    Array<double> slopes(radius + 1);
    native<T>().tap_slopes(args, slopes.get());
    if (!slopes.finite()) found("a slope of a tap is not finite");
    const TransposeArgs<T> turn{x.get(), nullptr, turned.get(), outer, length, inner, T(1), T(0), threads};
    native<T>().transpose_array(turn);
    for (std::int64_t b = 0; b < outer; ++b)
        for (std::int64_t i = 0; i < length; ++i)
            for (std::int64_t j = 0; j < inner; ++j)
                if (turned[(b * inner + j) * length + i] != x[(b * length + i) * inner + j]) found("not transposed");
    if (length) {
        Array<T> first(x.size), last(x.size), likely(x.size);
        EnergyArgs<T> args{x.get(), first.get(), outer, length, inner, false, false, T(1e-8), threads};
        if (!native<T>().energies(args).finite) found("an energy is not finite");
        args.x = turned.get();
        args.last = true;
        args.out = last.get();
        if (!native<T>().energies(args).finite) found("an energy is not finite");
        for (std::int64_t i = 0; i < x.size; ++i)
            if (first[i] != -turned[i] || last[i] != first[i]) found("an energy is not right");
        args.probabilities = true;
        args.out = likely.get();
        native<T>().energies(args);
        if (!likely.finite()) found("the energy of a probability is not finite");
    }
    logarithms<T>(c, outer, length, inner, threads);
    wide_rows<T>(c);
    const int axes = c.integer(1, 3), channels = c.integer(0, 4);
    std::int64_t sizes[3], n = 1;
    for (int a = 0; a < axes; ++a) n *= sizes[a] = c.integer(1, 6);
    const std::int64_t images = c.integer(0, 2);
    auto values = numbers<T>(c, images * n * channels, 1e6), inverse = numbers<T>(c, axes + channels, 1e3);
    Array<T> features(images * n * (axes + channels));
    const Pixels<T> pixels{values.get(), images, n * channels, channels, 1, channels};
    bilateral_features(GridFeatures<T>{pixels, sizes, axes, inverse.get()}, features.get(), threads);
    if (!features.finite()) found("features are not finite");
    // The same values with the channels first.
    Array<T> planes(values.size), same(features.size);
    for (std::int64_t b = 0; b < images; ++b)
        for (std::int64_t i = 0; i < n; ++i)
            for (int k = 0; k < channels; ++k) planes[(b * channels + k) * n + i] = values[(b * n + i) * channels + k];
    const Pixels<T> strided{planes.get(), images, n * channels, 1, n, channels};
    bilateral_features(GridFeatures<T>{strided, sizes, axes, inverse.get()}, same.get(), threads);
    for (std::int64_t i = 0; i < same.size; ++i)
        if (same[i] != features[i]) found("features depend on the strides of the image");
    shrunk<T>(c);
    near_rows<T>(c);
}

template <typename T> void columns(Choices& c) {
    const std::int64_t n = c.integer(0, 30), labels = c.integer(1, 40), count = c.integer(0, 40);
    const int threads = c.integer(1, 2);
    auto x = numbers<T>(c, n * labels, 1e6), u = numbers<T>(c, n * labels, 1e6);
    Array<T> gap(labels), most(labels), taken(n * count), spread(n * labels);
    const SpanArgs<T> spans{x.get(), u.get(), n, labels, gap.get(), most.get(), threads};
    native<T>().label_spans(spans);
    if (n && (!gap.finite() || !most.finite())) found("a span is not finite");
    Array<T> nothing(labels);
    native<T>().label_spans({nullptr, u.get(), n, labels, gap.get(), nothing.get(), threads});
    for (std::int64_t j = 0; j < labels && n; ++j)
        if (nothing[j] != T(0)) found("a probability where there is none");
    if (n) {
        const std::int64_t first = c.integer(0, static_cast<int>(n) - 1), step = c.integer(1, 3);
        const std::int64_t some = (n - 1 - first) / step + 1;
        Array<T> best(some);
        Array<std::int64_t> where(some);
        Array<double> sums(labels);
        Array<bool> wins(labels);
        native<T>().label_shares({u.get(),
                                  1,
                                  n,
                                  labels,
                                  {1, &n, &first, &step, &some},
                                  best.get(),
                                  where.get(),
                                  sums.get(),
                                  wins.get(),
                                  threads});
        if (!best.finite() || !sums.finite()) found("a share is not finite");
        for (std::int64_t i = 0; i < some; ++i)
            if (where[i] < 0 || where[i] >= labels || !wins[where[i]]) found("a best label that wins nothing");
    }
    Array<std::int64_t> which(count);
    for (std::int64_t j = 0; j < count; ++j) which[j] = c.any(0, static_cast<int>(labels) - 1);
    take_columns(x.get(), n, labels, which.get(), count, taken.get(), threads);
    spread_columns(taken.get(), n, labels, which.get(), count, spread.get(), threads);
    for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < count; ++j)
            if (spread[i * labels + which[j]] != x[i * labels + which[j]]) found("a column is another one");
    const std::int64_t lanes = native<T>().lanes();
    if (n < lanes || labels < lanes || count > labels) return;
    Array<T> other(labels, T(1)), few(n * (count + 1)), energies(n * (count + 1)), back(n * labels);
    for (std::int64_t j = 0; j < count; ++j) other[which[j]] = T(0);
    const MergeArgs<T> merge{x.get(),     u.get(),        n,           labels,
                             which.get(), count,          other.get(), static_cast<T>(-c.unit() - 1e-3),
                             few.get(),   energies.get(), back.get(),  threads};
    native<T>().merge_labels(merge);
    native<T>().unmerge_labels(merge);
    if (!few.finite() || !back.finite()) found("labels that were taken together are not finite");
    // Without x the rows are softmax(-unary), for which scale -1 needs no array; with scale 0 labels are dropped.
    MergeArgs<T> other_way = merge;
    other_way.x = nullptr;
    other_way.scale = T(-1);
    other_way.few = nullptr;
    native<T>().merge_labels(other_way);
    if (!energies.finite() && count < labels) {
        bool merged = false;
        for (std::int64_t j = 0; j < labels; ++j) merged |= other[j] != T(0);
        if (merged) found("the energy of merged labels is not finite");
    }
    other_way.few = few.get();
    native<T>().merge_labels(other_way);
    if (!few.finite()) found("merged labels of softmax are not finite");
    Array<T> dropped(n * count), kept(n * count);
    other_way.scale = T(0);
    other_way.few = dropped.get();
    other_way.few_unary = kept.get();
    other_way.x = c.flag() ? x.get() : nullptr;
    native<T>().merge_labels(other_way);
    if (!dropped.finite() || !kept.finite()) found("labels that were left are not finite");
}

void blocks(Choices& c) {
    std::vector<std::pair<char*, std::size_t>> held;
    for (int i = c.integer(1, 12); i > 0; --i) {
        if (!held.empty() && c.flag()) {
            const auto place = static_cast<std::size_t>(c.integer(0, static_cast<int>(held.size()) - 1));
            give_block(held[place].first);
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(place));
        } else {
            const auto size = static_cast<std::size_t>(c.integer(1, 3 << 20));
            char* block = static_cast<char*>(take_block(size));
            block[0] = block[size - 1] = 1;
            held.emplace_back(block, size);
        }
    }
    for (const auto& [block, size] : held) give_block(block);
}

}  // namespace fwcrf
