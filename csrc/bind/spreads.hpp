// The spread x of every term in every step of a run, kept for the backward pass; see spread_size.
#pragma once

#include "bind/arrays.hpp"
#include "runtime/block_allocator.hpp"
#include "steps/arguments.hpp"

#include <new>

namespace fwcrf {

template <typename T> class Spreads {
  public:
    // An allocator of memory that is not cleared.
    struct Uncleared : BlockAllocator<T> {
        template <typename U> struct rebind {
            using other = Uncleared;
        };
        Uncleared() = default;
        template <typename U> void construct(U* at) noexcept { ::new (static_cast<void*>(at)) U; }
    };

    // To be followed by `add` for every image; `lanes` of a vector, `row` as in spread_size.
    void begin(std::size_t images, std::size_t steps, std::size_t terms) {
        steps_ = steps;
        terms_ = terms;
        arrays_.assign(images * terms, {});
    }
    void add(std::size_t image, const std::vector<Term<T>>& of, std::int64_t n, std::int64_t row, std::int64_t lanes) {
        for (std::size_t c = 0; c < terms_; ++c)
            if (has_spread(of[c], n)) arrays_[image * terms_ + c].resize(steps_ * spread_size(of[c], row, lanes));
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
        const std::size_t each = all.size() / steps_;
        return {each ? all.data() + step * each : nullptr, each};
    }

  private:
    std::size_t steps_ = 0, terms_ = 0;
    std::vector<std::vector<T, Uncleared>> arrays_;
};

}  // namespace fwcrf
