// Banded matrices of Python as arguments of the bindings.
#pragma once

#include "bind/arrays.hpp"

#include <utility>

namespace fwcrf {

// The first column of each row, and the rows.
template <typename T> using GivenBand = std::pair<In<std::int32_t, 1>, In<T, 2>>;

template <typename T> Band<T> band(const GivenBand<T>& given, std::int64_t rows, std::int64_t columns) {
    const auto& [first, weight] = given;
    const auto width = size(weight, 1);
    require(rows >= 1 && columns >= 1 && width >= 1, "bands");
    require(size(first, 0) == rows && size(weight, 0) == rows, "as many rows as a band has");
    for (std::int64_t j = 0; j < rows; ++j) {
        require(first.data()[j] >= 0 && first.data()[j] + width <= columns, "bands stay inside");
        require(j == 0 || first.data()[j] >= first.data()[j - 1], "rows of a band follow each other");
    }
    return {rows, columns, width, first.data(), weight.data()};
}

}  // namespace fwcrf
