// The spread x of every term in every step of a run, kept for the backward pass; see spread_size.
#pragma once

#include "bind/arrays.hpp"
#include "runtime/block_allocator.hpp"
#include "steps/arguments.hpp"

#include <memory>

namespace fwcrf {

template <typename T> class Spreads {
  public:
    Spreads() = default;
    Spreads(const Spreads&) = delete;  // the binding would copy it otherwise

    // To be followed by `add` for every image; `lanes` of a vector, `row` as in spread_size.
    void begin(std::size_t images, std::size_t steps, std::size_t terms) {
        steps_ = steps;
        terms_ = terms;
        arrays_.clear();
        arrays_.resize(images * terms);
    }
    void add(std::size_t image, const std::vector<Term<T>>& of, std::int64_t n, std::int64_t row, std::int64_t lanes) {
        for (std::size_t c = 0; c < terms_; ++c) {
            if (!has_spread(of[c], n)) continue;
            const std::size_t count = steps_ * static_cast<std::size_t>(spread_size(of[c], row, lanes));
            arrays_[image * terms_ + c] = Array(BlockAllocator<T>().allocate(count), Give{count});
        }
    }
    // The arrays of an image, with the steps from the last to the first if `back`; null where there are none.
    std::vector<T*> of_image(std::size_t image, bool back) {
        std::vector<T*> found;
        for (std::size_t k = 0; k < steps_; ++k)
            for (std::size_t c = 0; c < terms_; ++c) found.push_back(array(image, back ? steps_ - 1 - k : k, c).first);
        return found;
    }
    bool fits(std::size_t images, std::size_t steps, std::size_t terms) const {
        return steps == steps_ && terms == terms_ && arrays_.size() == images * terms;
    }
    std::size_t steps() const { return steps_; }
    // The values of an array and their number; null and 0 if there is none.
    std::pair<T*, std::size_t> array(std::size_t image, std::size_t step, std::size_t term) {
        require(step < steps_ && term < terms_ && image < arrays_.size() / terms_, "an image, a step, a term");
        auto& all = arrays_[image * terms_ + term];  // of all steps: blocks of memory are large
        const std::size_t each = all ? all.get_deleter().count / steps_ : 0;
        return {each ? all.get() + step * each : nullptr, each};
    }

  private:
    struct Give {
        std::size_t count = 0;
        void operator()(T* values) const noexcept { BlockAllocator<T>().deallocate(values, count); }
    };
    using Array = std::unique_ptr<T[], Give>;  // not a vector: that would visit every value

    std::size_t steps_ = 0, terms_ = 0;
    std::vector<Array> arrays_;
};

}  // namespace fwcrf
