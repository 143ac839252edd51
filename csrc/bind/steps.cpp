// Dense models, the steps of solvers on them, and label pruning.
#include "bind/arrays.hpp"
#include "bind/bands.hpp"
#include "bind/spreads.hpp"
#include "lattice/borders.hpp"
#include "lattice/lines.hpp"
#include "steps/select.hpp"

#include <list>
#include <string>

namespace fwcrf {
namespace {

// Lanes of a vector of the instruction set in use.
template <typename T> std::size_t lanes() { return static_cast<std::size_t>(native<T>().lanes()); }

// Values of a row of labels in the steps.
template <typename T> std::size_t row(std::size_t labels) {
    const auto vector = static_cast<std::size_t>(native_for_rows<T>(static_cast<std::int64_t>(labels)).lanes());
    return (labels + vector - 1) / vector * vector;
}

template <typename T> void label_spans(Maybe<T, 2> x, In<T, 2> unary, Out<T, 1> gap, Out<T, 1> most, int threads) {
    const std::size_t labels = unary.shape(1);
    if (x) require_same(*x, unary, "shapes");
    require(labels >= 1 && gap.shape(0) == labels && most.shape(0) == labels && threads >= 1, "one span per label");
    const T* const given = x ? x->data() : nullptr;
    const SpanArgs<T> args{given, unary.data(), size(unary, 0), size(unary, 1), gap.data(), most.data(), threads};
    nb::gil_scoped_release release;
    native<T>().label_spans(args);
}

void check_columns(std::size_t labels, const In<std::int64_t, 1>& which, std::size_t count) {
    require(which.shape(0) == count, "as many columns");
    for (std::size_t j = 0; j < count; ++j)
        require(which.data()[j] >= 0 && which.data()[j] < static_cast<std::int64_t>(labels), "columns of the array");
}

template <typename T> void take(In<T, 2> x, In<std::int64_t, 1> which, Out<T, 2> out, int threads) {
    check_columns(x.shape(1), which, out.shape(1));
    require(out.shape(0) == x.shape(0) && threads >= 1, "as many rows");
    nb::gil_scoped_release release;
    take_columns(x.data(), size(x, 0), size(x, 1), which.data(), size(out, 1), out.data(), threads);
}

template <typename T> void spread(In<T, 2> x, In<std::int64_t, 1> which, Out<T, 2> out, int threads) {
    check_columns(out.shape(1), which, x.shape(1));
    require(out.shape(0) == x.shape(0) && threads >= 1, "as many rows");
    nb::gil_scoped_release release;
    spread_columns(x.data(), size(x, 0), size(out, 1), which.data(), size(x, 1), out.data(), threads);
}

template <typename T>
void merge(const T* x, In<T, 2> unary, In<std::int64_t, 1> kept, double scale, std::optional<Out<T, 2>> few,
           Out<T, 2> few_unary, T* out, int threads) {
    const std::size_t n = unary.shape(0), labels = unary.shape(1), count = kept.shape(0);
    check_columns(labels, kept, count);
    const std::size_t width = scale < 0 ? count + 1 : count;
    for (const auto& array : {few.value_or(few_unary), few_unary})
        require(array.shape(0) == n && array.shape(1) == width, "columns for kept labels, and one for merged labels");
    require(labels >= lanes<T>() && n >= lanes<T>() && scale <= 0 && threads >= 1, "pixels and labels, scale, threads");
    std::vector<T> merged(labels, T(1));
    for (std::size_t j = 0; j < count; ++j) merged[static_cast<std::size_t>(kept.data()[j])] = T(0);
    const MergeArgs<T> args{x,
                            unary.data(),
                            static_cast<std::int64_t>(n),
                            static_cast<std::int64_t>(labels),
                            kept.data(),
                            static_cast<std::int64_t>(count),
                            merged.data(),
                            static_cast<T>(scale),
                            few ? few->data() : nullptr,
                            few_unary.data(),
                            out,
                            threads};
    nb::gil_scoped_release release;
    out ? native<T>().unmerge_labels(args) : native<T>().merge_labels(args);
}

// See MergeArgs; scale = 0 drops the labels that are not kept.
template <typename T>
void lump(Maybe<T, 2> x, In<T, 2> unary, In<std::int64_t, 1> kept, double scale, std::optional<Out<T, 2>> few,
          Out<T, 2> few_unary, int threads) {
    if (x) require_same(*x, unary, "shapes");
    require(few || scale < 0, "an array for x");
    merge(x ? x->data() : nullptr, unary, kept, scale, few, few_unary, static_cast<T*>(nullptr), threads);
}
// The inverse, from `few`.
template <typename T>
void unlump(In<T, 2> unary, In<std::int64_t, 1> kept, double scale, Out<T, 2> few, Out<T, 2> few_unary, Out<T, 2> out,
            int threads) {
    require(out.shape(0) == unary.shape(0) && out.shape(1) == unary.shape(1) && scale < 0, "shapes, and a scale");
    merge(static_cast<const T*>(nullptr), unary, kept, scale, std::optional{few}, few_unary, out.data(), threads);
}

// The terms of a dense model for one image or a batch. Terms are added one by one; the model keeps their arrays alive.
template <typename T> class Model {
  public:
    // (first, weight) of a Band.
    using Given = GivenBand<T>;
    // (taps, left, right) of a Grid.
    using Axis = std::tuple<In<T, 1>, In<T, 1>, In<T, 1>>;

    // One lattice for all images: index, splat and slice are (images, n, corners).
    void add_lattice(In<std::int32_t, 3> index, In<T, 3> splat, In<T, 3> slice, In<std::int32_t, 3> neighbors,
                     Maybe<T, 2> shift, double tap, double identity, int order) {
        const std::size_t images = index.shape(0), n = index.shape(1), corners = index.shape(2);
        const auto vertices = size(neighbors, 1);
        require(corners >= 2 && corners <= kMaxCorners, "2 to 257 corners");
        require_same(index, splat, "shapes");
        require_same(index, slice, "shapes");
        require(neighbors.shape(0) == corners && neighbors.shape(2) == 2, "neighbours of every axis");
        require(order >= 0 && order <= 2, "order");
        begin(images, n, shift);
        for (std::size_t image = 0; image < terms_.size(); ++image) {
            Term<T>& term = terms_[image].emplace_back();
            const std::size_t g = images == 1 ? 0 : image, at = g * n * corners;
            FilterArgs<T>& l = term.lattice;
            l.corners = static_cast<int>(corners);
            l.splat = splat.data() + at;
            l.slice = slice.data() + at;
            l.tap = static_cast<T>(tap);
            l.identity = static_cast<T>(identity);
            l.order = static_cast<BlurOrder>(order);
            l.index = index.data() + at;
            l.neighbors = neighbors.data();
            l.vertices = vertices;
            if (images > 1) own_lattice(l, n);
            term.shift = shift ? shift->data() + g * n : nullptr;
        }
        keep(nb::cast(index), nb::cast(splat), nb::cast(slice), nb::cast(neighbors), nb::cast(shift));
    }

    // The same grid for all images. `between` holds the coarse size of each axis; `direct` describes the last axis
    // without a coarse grid.
    void add_grid(std::vector<std::int64_t> sizes, std::vector<std::int64_t> between, std::vector<Given> down,
                  std::vector<std::optional<Given>> middle, std::vector<Given> up, Axis direct, Maybe<T, 2> shift) {
        const std::size_t axes = sizes.size();
        require(axes >= 1 && axes <= kMaxAxes, "1 to 8 axes");
        require(sizes_.empty() || sizes_ == sizes, "grids of one shape");
        sizes_ = sizes;
        require(down.size() == axes && middle.size() == axes && up.size() == axes && between.size() == axes, "bands");
        Grid<T> grid{};
        grid.axes = static_cast<int>(axes);
        std::size_t n = 1;
        for (std::size_t a = 0; a < axes; ++a) {
            grid.down[a] = band<T>(down[a], between[a], sizes[a]);
            if (middle[a]) grid.middle[a] = band<T>(*middle[a], between[a], between[a]);
            grid.up[a] = band<T>(up[a], sizes[a], between[a]);
            n *= static_cast<std::size_t>(sizes[a]);
        }
        const auto& [taps, left, right] = direct;
        require(taps.shape(0) >= 1, "at least one tap");
        for (const auto& factor : {left, right}) require(size(factor, 0) == sizes.back(), "a factor per row");
        grid.taps = taps.data();
        grid.left = left.data();
        grid.right = right.data();
        grid.radius = size(taps, 0) - 1;
        const std::size_t images = shift ? shift->shape(0) : 1;
        begin(images, n, shift);
        for (std::size_t image = 0; image < terms_.size(); ++image) {
            Term<T>& term = terms_[image].emplace_back();
            const std::size_t g = images == 1 ? 0 : image;
            term.grid = grid;
            term.shift = shift ? shift->data() + g * n : nullptr;
        }
        keep(nb::cast(down), nb::cast(middle), nb::cast(up), nb::cast(direct), nb::cast(shift));
    }

    using First = std::tuple<int, double, Maybe<T, 3>, Out<T, 3>, double>;  // see Start
    // See TableSlopes: (images, n, corners) and (images, n), or (1, ...) for the sums over images.
    using Tables = std::pair<std::optional<Out<T, 3>>, std::optional<Out<T, 2>>>;

    // Runs the updates `moves`, rows of (map, scale, keep, step, unary, lean, dual), from x, (images, n, labels), or
    // from the result of `before`; each update writes its array of `outs`. `potts` holds a weight per term; a term
    // with a matrix, (labels, labels), in `matrices` has no Potts weight. `goals`, `points` and `rates`: see StepArgs.
    // `spreads` is filled with the spread x of every update. `before_spreads` holds the ones of the run whose steps
    // have their derivatives here, from the last to the first; the derivatives in weights of lattices, in `tables`, one
    // per term, need them. Returns (x is finite, MessageBound::all, MessageBound::last, StepArgs::reads of all images);
    // the bounds are 0 unless `noted`.
    std::tuple<bool, double, double, std::vector<std::int64_t>>
    run(In<T, 3> x, std::optional<First> before, Maybe<T, 3> unary, In<double, 1> potts,
        std::vector<Maybe<T, 2>> matrices, In<double, 2> moves, std::vector<std::optional<Out<T, 3>>> outs,
        std::vector<In<T, 3>> others, std::optional<Out<T, 3>> sum, std::optional<Out<T, 3>> dual,
        std::optional<Out<double, 3>> slopes, bool noted, int threads, std::vector<std::optional<Out<T, 3>>> goals,
        std::vector<In<T, 3>> points, std::optional<Out<double, 2>> rates, double tolerance, Spreads<T>* spreads,
        Spreads<T>* point_spreads, std::vector<Tables> tables) {
        const std::size_t images = x.shape(0), n = x.shape(1), labels = x.shape(2), terms = count_;
        const std::size_t steps = moves.shape(0);
        require(terms >= 1 && n == n_ && threads >= 1, "terms, points and threads");
        require(labels >= 1, "at least one label");
        require(terms_.size() == 1 || terms_.size() == images, "one model per image, or one for all");
        const auto fits = [&](const auto& array) {
            return array.shape(0) == images && array.shape(1) == n && array.shape(2) == labels;
        };
        require(moves.shape(1) == 7 && outs.size() == steps, "seven numbers and an output per update");
        require((!unary || fits(*unary)) && (!sum || fits(*sum)) && (!dual || fits(*dual)),
                "shape of the unary, the sum or the dual");
        for (const auto& out : outs) require(out ? fits(*out) : sum && &out == &outs.back(), "output shape");
        constexpr int maps = std::size(kMaps), duals = std::size(kDuals);
        Start<T> start{};
        if (before) {
            const auto& [map, scale, other, out, step] = *before;
            const bool derivative = static_cast<Map>(map) >= Map::softmax_derivative;
            require(map >= 1 && map < maps, "map of the start");
            require(labels <= most_labels() || (map == 1 && scale == -1 && unary && unary->data() == x.data()),
                    "start with many labels");
            require(fits(out) && out.data() != x.data(), "output of the start");
            require(derivative == static_cast<bool>(other) && (!other || fits(*other)), "derivatives need the others");
            start = {static_cast<Map>(map), static_cast<T>(scale), nullptr, nullptr, static_cast<T>(step)};
        }
        for (const auto& other : others) require(fits(other), "shape of the others");
        require(goals.empty() || goals.size() == steps, "a goal per update");
        for (const auto& goal : goals) require(!goal || fits(*goal), "shape of the goals");
        require(points.empty() || (points.size() == steps && !others.empty()), "a point per update with another array");
        for (const auto& point : points) require(fits(point), "shape of the points");
        require(!rates || (rates->shape(0) == steps + 1 && rates->shape(1) == 3 && !others.empty()),
                "three rates per update, with the others");
        require(potts.shape(0) == terms && matrices.size() == terms, "weights");
        for (const auto& m : matrices) require(!m || (m->shape(0) == labels && m->shape(1) == labels), "matrices");
        require(others.empty() || others.size() == steps, "another array per update");
        require(!slopes || !others.empty(), "slopes need the others");
        if (slopes)
            require(slopes->shape(0) == terms && slopes->shape(1) == labels && slopes->shape(2) == labels, "slopes");
        std::vector<Update<T>> made;
        for (std::size_t k = 0; k < steps; ++k) {
            const double* m = moves.data() + 7 * k;
            require(m[0] >= 0 && m[0] < maps && m[6] >= 0 && m[6] < duals, "map and dual");
            require(dual || (m[5] == 0 && m[6] == 0), "updates with a dual need its array");
            const auto map = static_cast<Map>(static_cast<int>(m[0]));
            require(map < Map::softmax_derivative || !others.empty(), "derivatives need the others");
            made.push_back({map, static_cast<T>(m[1]), static_cast<T>(m[2]), static_cast<T>(m[3]), static_cast<T>(m[4]),
                            static_cast<T>(m[5]), static_cast<Dual>(static_cast<int>(m[6]))});
        }
        if (labels > most_labels()) {
            require(others.empty() && !sum && !dual && goals.empty(),
                    "updates without gradients and duals for many labels");
            for (const auto& out : outs) require(out->data() == outs.front()->data(), "one output for many labels");
            for (const auto& m : matrices) require(!m, "Potts terms for many labels");
        }
        require(!spreads || labels <= most_labels(), "few labels for spreads");
        require(!point_spreads || (point_spreads->fits(images, steps, terms) && !others.empty()),
                "spreads of the points");
        require(tables.empty() || (tables.size() == terms && !others.empty()), "tables of every term");
        // Two labels have a lattice of single values, which is blurred without lines, and no rows.
        bool rows = labels > 2 || !others.empty() || sum || dual || noted || spreads;
        for (const auto& m : matrices) rows |= m.has_value();
        if (rows) find_lines(threads);
        if (rows && threads > 1) divide(threads);
        const Functions<T>& functions = rows ? native_for_rows<T>(static_cast<std::int64_t>(labels)) : native<T>();
        const std::int64_t lane_count = functions.lanes();
        const Wide<T> wide{native<T>().wide_products, native<T>().wide_outers};
        if (spreads) spreads->begin(images, steps, terms);
        for (std::size_t c = 0; c < tables.size(); ++c) {
            const auto& [weights, shift] = tables[c];
            const auto alike = [&](const auto& array) {
                return (array.shape(0) == 1 || array.shape(0) == images) && array.shape(1) == n;
            };
            require(!shift || alike(*shift), "one derivative per point");
            for (std::size_t g = 0; weights && g < terms_.size(); ++g) {
                const Term<T>& term = terms_[g][c];
                require(alike(*weights) && size(*weights, 2) == term.lattice.corners && !term.grid.axes,
                        "one derivative per corner");
                require(point_spreads && has_spread(term, static_cast<std::int64_t>(n)), "spreads for weights");
            }
        }
        nb::gil_scoped_release release;
        bool finite = true;
        MessageBound<T> bound;
        std::vector<T*> out(steps);
        std::vector<const T*> other(others.size()), point(points.size());
        std::vector<T*> goal(goals.size());
        std::vector<std::int64_t> read(steps), reads(steps);
        for (std::size_t g = 0; g < images; ++g) {
            std::vector<Term<T>> now = terms_[terms_.size() == 1 ? 0 : g];
            for (std::size_t c = 0; c < terms; ++c) {
                now[c].potts = static_cast<T>(potts.data()[c]);
                now[c].matrix = matrices[c] ? matrices[c]->data() : nullptr;
            }
            const std::size_t at = g * n * labels;
            for (std::size_t k = 0; k < steps; ++k) out[k] = outs[k] ? outs[k]->data() + at : nullptr;
            if (before) {
                start.other = std::get<2>(*before) ? std::get<2>(*before)->data() + at : nullptr;
                start.out = std::get<3>(*before).data() + at;
            }
            for (std::size_t k = 0; k < others.size(); ++k) other[k] = others[k].data() + at;
            for (std::size_t k = 0; k < points.size(); ++k) point[k] = points[k].data() + at;
            for (std::size_t k = 0; k < goals.size(); ++k) goal[k] = goals[k] ? goals[k]->data() + at : nullptr;
            std::vector<T*> filled, found;
            if (spreads) {
                const std::int64_t vectors = (static_cast<std::int64_t>(labels) + lane_count - 1) / lane_count;
                spreads->add(g, now, static_cast<std::int64_t>(n), row_vectors(vectors) * lane_count, lane_count);
                filled = spreads->of_image(g, false);
            }
            if (point_spreads) found = point_spreads->of_image(g, true);
            std::vector<TableSlopes<T>> of_tables;
            for (const auto& [weights, shift] : tables) {
                const std::size_t of_weights = weights && weights->shape(0) > 1 ? g * n * weights->shape(2) : 0;
                of_tables.push_back({weights ? weights->data() + of_weights : nullptr,
                                     shift ? shift->data() + (shift->shape(0) > 1 ? g * n : 0) : nullptr});
            }
            const StepArgs<T> args{x.data() + at,
                                   unary ? unary->data() + at : nullptr,
                                   static_cast<std::int64_t>(n),
                                   static_cast<std::int64_t>(labels),
                                   static_cast<int>(terms),
                                   now.data(),
                                   static_cast<int>(steps),
                                   made.data(),
                                   out.data(),
                                   others.empty() ? nullptr : other.data(),
                                   sum ? sum->data() + at : nullptr,
                                   dual ? dual->data() + at : nullptr,
                                   slopes ? slopes->data() : nullptr,
                                   threads,
                                   noted ? &bound : nullptr,
                                   false,
                                   before ? &start : nullptr,
                                   nullptr,
                                   goals.empty() ? nullptr : goal.data(),
                                   points.empty() ? nullptr : point.data(),
                                   rates ? rates->data() : nullptr,
                                   read.data(),
                                   static_cast<T>(tolerance),
                                   filled.empty() ? nullptr : filled.data(),
                                   found.empty() ? nullptr : found.data(),
                                   of_tables.empty() ? nullptr : of_tables.data(),
                                   native<T>().lanes() == 2 * lane_count ? &wide : nullptr};
            read.assign(steps, args.n);
            finite &= functions.run_steps(args);
            for (std::size_t k = 0; k < steps; ++k) reads[k] += read[k];
        }
        return {finite, bound.all, bound.last, std::move(reads)};
    }

    // The most labels with gradients, matrices or duals.
    static std::size_t most_labels() { return kMostLabels<T>; }

  private:
    void begin(std::size_t images, std::size_t n, const Maybe<T, 2>& shift) {
        require(count_ < kMaxTerms, "at most 8 terms");
        require(count_ == 0 || n == n_, "terms of as many points");
        require(!shift || (shift->shape(0) == images && shift->shape(1) == n), "one shift per point");
        require(images == 1 || count_ == 0 || terms_.size() == images || terms_.size() == 1, "images");
        n_ = n;
        ++count_;
        if (terms_.empty()) terms_.resize(images);
        // The first terms were shared by all images; now each image gets a copy.
        else if (images > terms_.size()) terms_.resize(images, terms_.front());
    }

    // The lines of all lattices that are blurred in one order; kept for the next run.
    void find_lines(int threads) {
        for (std::vector<Term<T>>& image : terms_)
            for (Term<T>& term : image) {
                FilterArgs<T>& l = term.lattice;
                if (term.grid.axes || l.lines || l.order == BlurOrder::symmetric || l.identity != T(0)) continue;
                lines_.push_back(lattice_lines(l.corners, l.vertices, l.neighbors, threads));
                l.lines = lines_.back().axes.data();
            }
    }

    // Divides the lattices that are too large for one per thread, or cost more to clear and to add up than own rows;
    // kept for the next run with as many threads.
    void divide(int threads) {
        const auto n = static_cast<std::int64_t>(n_), lines = sizes_.empty() ? n : sizes_.front();
        for (std::vector<Term<T>>& image : terms_)
            for (Term<T>& term : image) {
                FilterArgs<T>& l = term.lattice;
                const bool large = 2 * l.vertices > n || lattices_that_pay(n, l.vertices, threads) < threads;
                if (term.grid.axes || !large || (l.borders && l.borders->threads == threads)) continue;
                LatticeBorders& borders = borders_.emplace_back();
                find_borders(lines, n / lines, l.corners, l.index, l.vertices, threads, borders);
                l.borders = borders ? &borders.found : nullptr;
            }
    }

    // Cuts one image out of a lattice of several images: its vertices are consecutive.
    void own_lattice(FilterArgs<T>& l, std::size_t n) {
        const std::size_t corners = static_cast<std::size_t>(l.corners), count = n * corners;
        std::int32_t low = l.index[0], high = l.index[0];
        for (std::size_t i = 0; i < count; ++i) {
            low = l.index[i] < low ? l.index[i] : low;
            high = l.index[i] > high ? l.index[i] : high;
        }
        const std::int64_t vertices = high - low + 1, all = l.vertices;
        require(low >= 0 && high < all, "vertices of the lattice");
        std::vector<std::int32_t>& index = tables_.emplace_back(count);
        for (std::size_t i = 0; i < count; ++i) index[i] = l.index[i] - low;
        std::vector<std::int32_t>& neighbors = tables_.emplace_back(corners * vertices * 2);
        for (std::size_t c = 0; c < corners; ++c)
            for (std::int64_t v = 0; v < 2 * vertices; ++v) {
                const std::int64_t other = l.neighbors[(c * all + low) * 2 + v] - low;
                require(other == all - low || (other >= 0 && other < vertices), "images share no vertex");
                neighbors[c * vertices * 2 + v] = static_cast<std::int32_t>(other < vertices ? other : vertices);
            }
        l.index = index.data();
        l.neighbors = neighbors.data();
        l.vertices = vertices;
    }

    template <typename... Objects> void keep(Objects&&... objects) { (kept_.push_back(objects), ...); }

    std::size_t n_ = 0, count_ = 0;
    std::vector<std::int64_t> sizes_;          // of all grids
    std::vector<std::vector<Term<T>>> terms_;  // per image, or once for all images
    std::list<std::vector<std::int32_t>> tables_;
    std::list<LatticeLines> lines_;
    std::list<LatticeBorders> borders_;
    std::vector<nb::object> kept_;
};

template <typename T> void bind_model(nb::module_& m, const char* name) {
    nb::class_<Model<T>>(m, name)
        .def(nb::init<>())
        .def_static("most_labels", &Model<T>::most_labels)
        .def_static("lanes", &lanes<T>)
        .def_static("row", &row<T>, "labels"_a)
        .def("add_lattice", &Model<T>::add_lattice, "index"_a.noconvert(), "splat"_a.noconvert(), "slice"_a.noconvert(),
             "neighbors"_a.noconvert(), "shift"_a.noconvert().none(), "tap"_a, "identity"_a, "order"_a)
        .def("add_grid", &Model<T>::add_grid, "sizes"_a, "between"_a, "down"_a, "middle"_a, "up"_a, "direct"_a,
             "shift"_a.noconvert().none())
        .def("run", &Model<T>::run, "x"_a.noconvert(), "before"_a.none(), "unary"_a.noconvert().none(),
             "potts"_a.noconvert(), "matrices"_a, "moves"_a.noconvert(), "outs"_a, "others"_a,
             "sum"_a.noconvert().none(), "dual"_a.noconvert().none(), "slopes"_a.noconvert().none(), "noted"_a,
             "threads"_a, "goals"_a, "points"_a, "rates"_a.noconvert().none(), "tolerance"_a = 0.0,
             "spreads"_a.none() = nb::none(), "point_spreads"_a.none() = nb::none(),
             "tables"_a = std::vector<typename Model<T>::Tables>());
}

template <typename T> void bind_spreads(nb::module_& m, const char* name) {
    nb::class_<Spreads<T>>(m, name)
        .def(nb::init<>())
        .def(
            "array",
            [](nb::pointer_and_handle<Spreads<T>> self, std::size_t image, std::size_t step, std::size_t term) {
                const auto [values, count] = self.p->array(image, step, term);
                return nb::ndarray<nb::numpy, T, nb::ndim<1>>(values, {count}, self.h);
            },
            "image"_a, "step"_a, "term"_a)
        .def("steps", &Spreads<T>::steps);
}

template <typename T> void bind(nb::module_& m) {
    m.def("label_spans", &label_spans<T>, "x"_a.noconvert().none(), "unary"_a.noconvert(), "gap"_a.noconvert(),
          "most"_a.noconvert(), "threads"_a);
    m.def("take_labels", &take<T>, "x"_a.noconvert(), "which"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("spread_labels", &spread<T>, "x"_a.noconvert(), "which"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("merge_labels", &lump<T>, "x"_a.noconvert().none(), "unary"_a.noconvert(), "kept"_a.noconvert(), "scale"_a,
          "few"_a.noconvert().none(), "few_unary"_a.noconvert(), "threads"_a);
    m.def("unmerge_labels", &unlump<T>, "unary"_a.noconvert(), "kept"_a.noconvert(), "scale"_a, "few"_a.noconvert(),
          "few_unary"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
}

}  // namespace

void bind_steps(nb::module_& m) {
    bind<float>(m);
    bind<double>(m);
    bind_spreads<float>(m, "SpreadsF32");
    bind_spreads<double>(m, "SpreadsF64");
    bind_model<float>(m, "ModelF32");
    bind_model<double>(m, "ModelF64");
    m.def("maps", [] { return std::vector<std::string>(std::begin(kMaps), std::end(kMaps)); });
    m.def("duals", [] { return std::vector<std::string>(std::begin(kDuals), std::end(kDuals)); });
}

}  // namespace fwcrf
