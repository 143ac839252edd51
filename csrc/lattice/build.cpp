#include "lattice/build.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "bind/dispatch.hpp"
#include "runtime/parallel.hpp"

namespace fwcrf {
namespace {

template <int W> struct Key {
    std::array<std::uint64_t, W> words{};

    std::uint64_t& operator[](int w) { return words[w]; }
    std::uint64_t operator[](int w) const { return words[w]; }
    // Not the operator of std::array: it calls memcmp, which takes a third of the construction.
    bool operator==(const Key& other) const {
        std::uint64_t difference = 0;
        for (int w = 0; w < W; ++w) difference |= words[w] ^ other.words[w];
        return difference == 0;
    }
    Key operator+(const Key& other) const {
        Key sum = *this;
        for (int w = 0; w < W; ++w) sum.words[w] += other.words[w];
        return sum;
    }
    Key operator-(const Key& other) const {
        Key difference = *this;
        for (int w = 0; w < W; ++w) difference.words[w] -= other.words[w];
        return difference;
    }
};

// A vertex is its remainder m (0..d, all its coordinates are m modulo d + 1) and the quotients of its
// first d coordinates by d + 1. Each has a bit field, wide enough for the range of the data and a step in any
// direction. No field straddles two words: a step from vertex to vertex is an addition of words, without overflow.
struct Field {
    int word, shift;
};

struct Layout {
    int d, words = 1;
    Field remainder;
    std::array<Field, kMaxDim> quotient;
    std::array<std::int64_t, kMaxDim> offset;

    Layout(int d, const std::int64_t* low, const std::int64_t* high) : d(d) {
        int used = 0;
        const auto place = [&](std::uint64_t largest) {
            int bits = 1;
            while (bits < 64 && (largest >> bits) != 0) ++bits;
            if (used + bits > 64) {
                ++words;
                used = 0;
            }
            const Field field{words - 1, used};
            used += bits;
            return field;
        };
        remainder = place(kMaxDim + 1);
        for (int i = 0; i < d; ++i) {
            offset[i] = low[i] - 3;
            quotient[i] = place(static_cast<std::uint64_t>(high[i] - low[i] + 6));
        }
    }
};

template <int W> Key<W> unit(Field field) {
    Key<W> key{};
    key[field.word] = std::uint64_t{1} << field.shift;
    return key;
}

// Steps between vertices, as differences of keys.
template <int W> struct Steps {
    Key<W> remainder{}, all{};
    std::array<Key<W>, kMaxDim + 1> quotient{};  // of the last coordinate zero, because it is implied

    explicit Steps(const Layout& layout) : remainder(unit<W>(layout.remainder)) {
        for (int i = 0; i < layout.d; ++i) {
            quotient[i] = unit<W>(layout.quotient[i]);
            all = all + quotient[i];
        }
    }
};

inline int axis_at(const std::int64_t* order, int m) {
    const int word = m / kPerOrderWord;
    return static_cast<int>(order[word] >> kOrderBits * (m - word * kPerOrderWord) & 31);
}

template <int W> std::uint64_t hash(const Key<W>& key) {
    std::uint64_t h = 0;
    for (int w = 0; w < W; ++w) h = (h ^ key[w] ^ (h >> 29)) * 0x9E3779B97F4A7C15u;
    return h;
}

// Numbers of keys, in the order of insertion. A slot has no key but a part of its hash: eight slots to a cache line,
// and a key that is not there, as most neighbours in a fine lattice, is mostly found to be absent in one line.
template <int W> class Table {
  public:
    // Clears the table, for keys of this many points. The memory is kept unless it is unusually large: fresh pages are
    // slow, and the next image is probably like the last.
    void clear(std::int64_t points) {
        keys_.clear();
        std::size_t size = kFirst;
        while (size > kLeast && size > 4 * static_cast<std::size_t>(points)) size /= 2;
        if (slots_.capacity() > kKept) {
            Vector<Key<W>>().swap(keys_);
            Vector<Slot>().swap(slots_);
        }
        resize(size);
    }

    std::int32_t insert(const Key<W>& key) {
        const std::uint64_t h = hash(key);
        std::size_t s = find_slot(key, h);
        if (slots_[s].id >= 0) return slots_[s].id;
        if (keys_.size() >= kMost) throw std::length_error("too many lattice vertices");
        const auto id = static_cast<std::int32_t>(keys_.size());
        slots_[s] = {part(h), id};
        keys_.push_back(key);
        if (keys_.size() * 2 > slots_.size()) resize(slots_.size() * 4);
        return id;
    }
    std::int32_t find(const Key<W>& key) const { return slots_[find_slot(key, hash(key))].id; }
    void prepare(const Key<W>& key) const { __builtin_prefetch(&slots_[hash(key) >> shift_]); }
    template <typename V> using Vector = std::vector<V, BlockAllocator<V>>;
    const Vector<Key<W>>& keys() const { return keys_; }

  private:
    static constexpr std::size_t kLeast = std::size_t{1} << 8, kFirst = std::size_t{1} << 14;
    static constexpr std::size_t kKept = std::size_t{1} << 20;
    static constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max() - 1;
    struct Slot {
        std::uint32_t part;  // of the hash
        std::int32_t id;
    };

    static std::uint32_t part(std::uint64_t h) { return static_cast<std::uint32_t>(h >> 16); }
    std::size_t find_slot(const Key<W>& key, std::uint64_t h) const {
        std::size_t s = h >> shift_;
        while (slots_[s].id >= 0 && !(slots_[s].part == part(h) && keys_[slots_[s].id] == key))
            s = (s + 1) & (slots_.size() - 1);
        return s;
    }
    void resize(std::size_t size) {
        slots_.assign(size, Slot{0, -1});
        shift_ = 64;
        while (size > 1) {
            size >>= 1;
            --shift_;
        }
        // All keys differ, so a free slot is all that is looked for.
        for (std::size_t id = 0; id < keys_.size(); ++id) {
            const std::uint64_t h = hash(keys_[id]);
            std::size_t s = h >> shift_;
            while (slots_[s].id >= 0) s = (s + 1) & (slots_.size() - 1);
            slots_[s] = {part(h), static_cast<std::int32_t>(id)};
        }
    }

    Vector<Slot> slots_;
    Vector<Key<W>> keys_;
    int shift_ = 64;
};

// A simplex is identified by its first corner and the order of its axes.
// C is the number of corners if it is known at compile time, else the largest possible number.
template <int W, int C> struct Simplex {
    static constexpr int kWords = order_words(C);
    Key<W> base;
    std::array<std::int64_t, kWords> order;
    std::array<std::int32_t, C> corner;

    bool same(const Simplex& other) const {
        std::uint64_t difference = base == other.base ? 0 : 1;
        for (int w = 0; w < kWords; ++w) difference |= order[w] ^ other.order[w];
        return difference == 0;
    }
};

// A cache of simplices, by hash: nearby pixels often share a simplex. Kept between the calls of a thread, because fresh
// pages are slow.
template <int W, int C> class Recent {
  public:
    using Entry = Simplex<W, C>;

    Recent() : entries_(std::size_t{1} << kLog2) {}
    // Forgets all simplices; few points get few entries.
    void forget(std::int64_t points) {
        log2_ = kLog2;
        while (log2_ > kLeastLog2 && std::int64_t{1} << log2_ > points) --log2_;
        Entry none{};
        none.order.fill(-1);
        for (std::size_t i = 0; i < std::size_t{1} << log2_; ++i) entries_[i] = none;
    }
    Entry& at(const Entry& simplex) {
        std::uint64_t h = hash(simplex.base);
        for (const std::int64_t order : simplex.order) h = 31 * h + order;
        return entries_[(h * 0x9E3779B97F4A7C15u) >> (64 - log2_)];
    }

  private:
    static constexpr int kLog2 = 13, kLeastLog2 = 6;
    int log2_ = kLog2;
    std::vector<Entry> entries_;
};

// Vertices of the points [begin, end), numbered by first touch within the range.
// D is the dimension if it is known at compile time, else 0.
//
// Cache misses in the two hash tables would take most of the time, so each block of points prefetches all cells first:
// of its simplices, then of the corners of the unknown simplices.
template <int W, int D, typename T>
void insert_range(const Points<T>& points, const Layout& layout, const Steps<W>& steps, const double* scale,
                  std::int64_t begin, std::int64_t end, Table<W>& table, std::int32_t* index, T* weight,
                  std::int64_t* order, Stop& stop) {
    constexpr int C = (D ? D : kMaxDim) + 1;
    const int d = D ? D : points.d;
    const int corners = d + 1;
    const int words = order_words(corners);
    static thread_local Recent<W, C> recent;
    recent.forget(end - begin);
    Embedding block{};  // initialized, because whole blocks are read even if fewer points were embedded
    alignas(64) std::uint64_t base[W][kBlock];
    T room[kBlock * (C - 1)];
    Simplex<W, C> simplices[kBlock];
    Simplex<W, C>* seen[kBlock];
    Key<W> keys[kBlock][C];
    int unknown[kBlock];

    for (std::int64_t first = begin; first < end && !stop.asked(first / kBlock); first += kBlock) {
        const int count = static_cast<int>(end - first < kBlock ? end - first : kBlock);
        native<T>().embed(points.rows(first, count, room), count, points.d, scale, points.single, block);
        for (int w = 0; w < W; ++w)
            for (int l = 0; l < kBlock; ++l) base[w][l] = 0;
        for (int a = 0; a < d; ++a) {
            const Field field = layout.quotient[a];
            const std::int64_t offset = layout.offset[a];
            for (int l = 0; l < kBlock; ++l)
                base[field.word][l] += static_cast<std::uint64_t>(block.quotient[a][l] - offset) << field.shift;
        }
        for (int l = 0; l < count; ++l) {
            Simplex<W, C>& simplex = simplices[l];
            for (int w = 0; w < W; ++w) simplex.base[w] = base[w][l];
            for (int w = 0; w < Simplex<W, C>::kWords; ++w) simplex.order[w] = block.order[w][l];
            seen[l] = &recent.at(simplex);
            __builtin_prefetch(seen[l]);
            for (int w = 0; w < words; ++w) order[(first + l) * words + w] = block.order[w][l];
            for (int m = 0; m < corners; ++m) weight[(first + l) * corners + m] = static_cast<T>(block.weight[m][l]);
        }
        int misses = 0;
        for (int l = 0; l < count; ++l) {
            for (int m = 0; m < corners; ++m) index[(first + l) * corners + m] = seen[l]->corner[m];
            unknown[misses] = l;
            misses += !seen[l]->same(simplices[l]);
        }
        for (int u = 0; u < misses; ++u) {
            const Simplex<W, C>& simplex = simplices[unknown[u]];
            Key<W> key = simplex.base;
            for (int m = 0; m < corners; ++m) {
                keys[u][m] = key;
                table.prepare(key);
                key = key + steps.remainder - steps.quotient[axis_at(simplex.order.data(), m)];
            }
        }
        for (int u = 0; u < misses; ++u) {
            const int l = unknown[u];
            Simplex<W, C>& simplex = simplices[l];
            for (int m = 0; m < corners; ++m)
                index[(first + l) * corners + m] = simplex.corner[m] = table.insert(keys[u][m]);
            *seen[l] = simplex;
        }
    }
}

template <int W>
Graph connect(const Layout& layout, const Steps<W>& steps, const Table<W>& table, int threads, Stop& stop) {
    const int corners = layout.d + 1;
    const auto vertices = static_cast<std::int64_t>(table.keys().size());
    const std::uint64_t remainder_mask = std::uint64_t{31} << layout.remainder.shift;
    Graph graph;
    graph.vertices = vertices;
    graph.neighbors.assign(vertices * corners * 2, static_cast<std::int32_t>(vertices));
    for_each(threads, corners, [&](std::int64_t axis) {
        std::int32_t* pairs = graph.neighbors.data() + axis * vertices * 2;
        // One step down an axis: every coordinate falls by one, the coordinate of the axis rises by d.
        Key<W> inner = steps.quotient[axis] - steps.remainder;
        Key<W> wrap = steps.quotient[axis] - steps.all;
        for (int m = 0; m < layout.d; ++m) wrap = wrap + steps.remainder;
        // Several vertices at a time, their slots prefetched: cache misses would take most of the time.
        constexpr std::int64_t kSome = 32;
        Key<W> below[kSome];
        for (std::int64_t first = 0; first < vertices && !(first % 4096 == 0 && stop.asked(0)); first += kSome) {
            const std::int64_t count = vertices - first < kSome ? vertices - first : kSome;
            for (std::int64_t i = 0; i < count; ++i) {
                const Key<W>& key = table.keys()[first + i];
                const bool zero = (key[layout.remainder.word] & remainder_mask) == 0;
                below[i] = key + (zero ? wrap : inner);
                table.prepare(below[i]);
            }
            for (std::int64_t i = 0; i < count; ++i) {
                const std::int32_t u = table.find(below[i]);
                if (u < 0) continue;
                pairs[2 * (first + i)] = u;
                pairs[2 * u + 1] = static_cast<std::int32_t>(first + i);
            }
        }
    });
    return graph;
}

template <int W, typename T>
Graph build_words(const Points<T>& points, const Layout& layout, const double* scale, std::int32_t* index, T* weight,
                  std::int64_t* order, int threads, Stop& stop) {
    const Steps<W> steps(layout);
    const std::int64_t total = points.n;
    const int corners = points.d + 1;
    static thread_local std::vector<Table<W>> tables;
    if (tables.size() < static_cast<std::size_t>(threads)) tables.resize(threads);
    for (std::size_t t = threads; t < tables.size(); ++t) tables[t].clear(0);
    // A pointer, because `tables` is thread_local: each thread of the region would see its own.
    Table<W>* const table = tables.data();
    const auto edge = [&](std::int64_t t) { return total * t / threads; };
    Any failed, empty;  // an exception must not leave a parallel region
    for_each(threads, threads, [&](std::int64_t t) {
        try {
            const auto insert = points.d == 5   ? insert_range<W, 5, T>
                                : points.d == 2 ? insert_range<W, 2, T>
                                                : insert_range<W, 0, T>;
            table[t].clear(total);
            insert(points, layout, steps, scale, edge(t), edge(t + 1), table[t], index, weight, order, stop);
        } catch (const std::bad_alloc&) {
            empty |= true;
        } catch (const std::exception&) {
            failed |= true;
        }
    });
    if (empty) throw std::bad_alloc();
    if (failed) throw std::length_error("too many lattice vertices");
    if (stop.stopped()) return {};  // some of `index` is not filled
    std::vector<std::vector<std::int32_t>> renumber(threads);
    for (int t = 1; t < threads; ++t) {
        renumber[t].reserve(table[t].keys().size());
        for (const Key<W>& key : table[t].keys()) {
            if (renumber[t].size() % 4096 == 0 && stop.asked(0)) return {};
            renumber[t].push_back(table[0].insert(key));
        }
    }
    in_parallel(threads, [&](Team team) {
        for (int t = 1; t < threads; ++t) {
            const std::int32_t* const number = renumber[t].data();
            const std::int64_t first = edge(t) * corners;
            const Range mine = share(edge(t + 1) * corners - first, team.thread, team.threads);
            for (std::int64_t i = first + mine.begin; i < first + mine.end; ++i) index[i] = number[index[i]];
        }
    });
    return connect(layout, steps, table[0], threads, stop);
}

// The lattice of one image.
template <typename T>
Graph build_one(const Points<T>& points, const Layout& layout, const double* scale, std::int32_t* index, T* weight,
                std::int64_t* order, int threads, Stop& stop) {
    if (layout.words == 1) return build_words<1>(points, layout, scale, index, weight, order, threads, stop);
    if (layout.words == 2) return build_words<2>(points, layout, scale, index, weight, order, threads, stop);
    if (layout.words <= 4) return build_words<4>(points, layout, scale, index, weight, order, threads, stop);
    return build_words<kMaxDim + 1>(points, layout, scale, index, weight, order, threads, stop);
}

// The lattices of several images as one.
Graph joined(std::vector<Graph>&& graphs, int corners) {
    if (graphs.size() == 1) return std::move(graphs.front());
    Graph all;
    for (const Graph& graph : graphs) all.vertices += graph.vertices;
    if (all.vertices >= std::numeric_limits<std::int32_t>::max()) throw std::length_error("too many lattice vertices");
    all.neighbors.resize(all.vertices * corners * 2);
    std::int64_t first = 0;
    for (const Graph& graph : graphs) {
        const std::int64_t count = 2 * graph.vertices;
        for (int axis = 0; axis < corners; ++axis) {
            const std::int32_t* const from = graph.neighbors.data() + axis * count;
            std::int32_t* const to = all.neighbors.data() + 2 * (axis * all.vertices + first);
            for (std::int64_t i = 0; i < count; ++i)
                to[i] = static_cast<std::int32_t>(from[i] < graph.vertices ? from[i] + first : all.vertices);
        }
        first += graph.vertices;
    }
    return all;
}

}  // namespace

Quotients quotient_range(const std::vector<double>& lowest, const std::vector<double>& highest,
                         const std::vector<double>& scale) {
    // Beyond so many lattice cells from the origin a double no longer resolves a cell.
    constexpr double kFarthest = 0x1p45;
    const std::size_t d = scale.size();
    if (d < 1 || lowest.size() != d || highest.size() != d)
        throw std::invalid_argument("a lowest and a highest value per feature");
    std::vector<double> low(d), high(d);
    double feature = 0, quotient = 0, largest = 0;
    for (std::size_t j = 0; j < d; ++j) {
        low[j] = lowest[j] * scale[j];
        high[j] = highest[j] * scale[j];
        if (!std::isfinite(low[j]) || !std::isfinite(high[j])) throw std::invalid_argument("finite features");
        feature = std::max({feature, std::abs(lowest[j]), std::abs(highest[j])});
        quotient = std::max({quotient, std::abs(low[j]), std::abs(high[j])});
        largest = std::max(largest, scale[j]);
    }
    const double cells = static_cast<double>(d + 1);
    if (quotient * cells > kFarthest) {
        char text[256];
        std::snprintf(text, sizeof text,
                      "features reach %.3g standard deviations from the origin; expected less than about %.2g. Use "
                      "larger bandwidths, or subtract the mean from the features.",
                      feature, kFarthest / cells / largest);
        throw std::domain_error(text);
    }
    // Coordinate j of the elevated point is sum_{i >= j} c_i - j c_{j-1}.
    std::vector<std::int64_t> least(d), most(d);
    double down = 0, up = 0;
    for (std::size_t j = d; j-- > 0;) {
        const double before = static_cast<double>(j);
        down += low[j];
        up += high[j];
        const double from = (down - (j ? before * high[j - 1] : 0)) / cells;
        const double to = (up - (j ? before * low[j - 1] : 0)) / cells;
        least[j] = static_cast<std::int64_t>(std::floor(from)) - 2;
        most[j] = static_cast<std::int64_t>(std::ceil(to)) + 2;
    }
    return {std::move(least), std::move(most)};
}

template <typename T>
Graph build(const Points<T>& points, const double* scale, const std::int64_t* low, const std::int64_t* high,
            std::int32_t* index, T* weight, std::int64_t* order, int threads) {
    const Layout layout(points.d, low, high);
    const int corners = points.d + 1;
    const std::int64_t each = points.n * corners;
    std::vector<Graph> graphs(points.batch);
    Stop stop;
    const auto one = [&](std::int64_t b, int threads) {
        graphs[b] = build_one(points.image(b), layout, scale, index + b * each, weight + b * each,
                              order + b * points.n * order_words(corners), threads, stop);
    };
    // One thread per image, or all threads on the points of each image. A nested region, even in a region of a single
    // thread, would start new threads every time.
    if (points.batch < threads) {
        for (std::int64_t b = 0; b < points.batch; ++b) one(b, threads);
    } else {
        Any failed, empty;  // an exception must not leave a parallel region
        for_each(threads, points.batch, [&](std::int64_t b) {
            try {
                one(b, 1);
            } catch (const std::bad_alloc&) {
                empty |= true;
            } catch (const std::exception&) {
                failed |= true;
            }
        });
        if (empty) throw std::bad_alloc();
        if (failed) throw std::length_error("too many lattice vertices");
    }
    stop.check();
    std::int64_t first = 0;
    for (std::int64_t b = 0; b < points.batch; ++b) {
        for (std::int64_t i = b * each; first && i < (b + 1) * each; ++i) index[i] += static_cast<std::int32_t>(first);
        first += graphs[b].vertices;
    }
    return joined(std::move(graphs), corners);
}

namespace {

// Chains of neighbours: from a vertex, one step along each axis of a set (a bit mask), in ascending order like the
// blur, all down (way 0) or all up (way 1).
struct Chains {
    int corners;
    std::int64_t vertices;
    const std::int32_t* neighbors;

    bool open(std::int64_t at, std::uint32_t axes, int way) const {
        for (int a = 0; a < corners && at < vertices; ++a)
            if (axes >> a & 1) at = neighbors[(a * vertices + at) * 2 + way];
        return at < vertices;
    }
};

}  // namespace

template <typename T>
void diagonal(std::int64_t n, int d, const std::int32_t* index, const T* weight, const std::int64_t* order,
              std::int64_t vertices, const std::int32_t* neighbors, double tap, double identity, T* out, T* slopes,
              int threads) {
    const int corners = d + 1;
    if (corners <= kTabled) {
        native<T>().diagonal(
            {n, corners, index, weight, order, vertices, neighbors, tap, identity, out, slopes, threads});
        return;
    }
    const Chains chains{corners, vertices, neighbors};
    std::array<double, kMaxDim + 2> power;
    power[0] = 1.0;
    for (int s = 1; s <= corners; ++s) power[s] = power[s - 1] * tap;
    for_each(threads, n, [&](std::int64_t i) {
        const std::int32_t* v = index + i * corners;
        const T* w = weight + i * corners;
        double sum = 0.0;
        std::array<double, kMaxDim + 1> slope{};
        for (int k = 0; k < corners; ++k) {
            double reached = (1.0 + identity) * w[k];
            slope[k] += reached;
            std::uint32_t axes = 0;
            for (int s = 1; s <= corners; ++s) {
                const int to = (k + s) % corners;
                axes |= 1u << axis_at(order + i * order_words(corners), (k + s - 1) % corners);
                const double open = power[s] * (chains.open(v[k], axes, 1) + chains.open(v[to], axes, 0));
                reached += open * w[to];
                slope[to] += open * w[k];
            }
            sum += w[k] * reached;
            slope[k] += reached;
        }
        out[i] = static_cast<T>(sum);
        for (int k = 0; slopes && k < corners; ++k) slopes[i * corners + k] = static_cast<T>(slope[k]);
    });
}

template <typename T>
void embedding_adjoint(std::int64_t n, int d, const T* of_weight, const std::int64_t* order, const double* scale,
                       T* of_features, int threads) {
    const int corners = d + 1;
    for_each(threads, n, [&](std::int64_t i) {
        const T* const g = of_weight + i * corners;
        // Weight m is the difference of the sorted coordinates m and m - 1, over the number of corners.
        std::array<double, kMaxDim + 1> of_elevated;
        for (int m = 0; m < corners; ++m)
            of_elevated[axis_at(order + i * order_words(corners), m)] = (g[m] - g[m < d ? m + 1 : 0]) / double(corners);
        double sum = 0;
        for (int j = 0; j < d; ++j) {
            sum += of_elevated[j];
            of_features[i * d + j] = static_cast<T>(scale[j] * (sum - (j + 1) * of_elevated[j + 1]));
        }
    });
}

template Graph build(const Points<float>&, const double*, const std::int64_t*, const std::int64_t*, std::int32_t*,
                     float*, std::int64_t*, int);
template Graph build(const Points<double>&, const double*, const std::int64_t*, const std::int64_t*, std::int32_t*,
                     double*, std::int64_t*, int);
template void diagonal(std::int64_t, int, const std::int32_t*, const float*, const std::int64_t*, std::int64_t,
                       const std::int32_t*, double, double, float*, float*, int);
template void diagonal(std::int64_t, int, const std::int32_t*, const double*, const std::int64_t*, std::int64_t,
                       const std::int32_t*, double, double, double*, double*, int);
template void embedding_adjoint(std::int64_t, int, const float*, const std::int64_t*, const double*, float*, int);
template void embedding_adjoint(std::int64_t, int, const double*, const std::int64_t*, const double*, double*, int);

}  // namespace fwcrf
