#include "kernels.hpp"

#include <cstdlib>
#include <cstring>

namespace fwcrf {

#define FWCRF_DECLARE(ISA)                                                                         \
    namespace ISA {                                                                                \
    void embed_f32(const float*, int, int, const double*, Embedding&);                             \
    void embed_f64(const double*, int, int, const double*, Embedding&);                            \
    void embed_single(const float*, int, int, const double*, Embedding&);                          \
    bool bounds_f32(const float*, std::int64_t, int, double*, double*);                            \
    bool bounds_f64(const double*, std::int64_t, int, double*, double*);                           \
    bool filter_f32(const FilterArgs<float>&);                                                     \
    bool filter_f64(const FilterArgs<double>&);                                                    \
    void corner_dots_f32(const FilterArgs<float>&, const float*, float*);                          \
    void corner_dots_f64(const FilterArgs<double>&, const double*, double*);                       \
    void diagonal_f32(const DiagonalArgs<float>&);                                                 \
    void diagonal_f64(const DiagonalArgs<double>&);                                                \
    Sums normal_f32(const NormalArgs<float>&);                                                     \
    Sums normal_f64(const NormalArgs<double>&);                                                    \
    void gaussian_sums_f32(const SumArgs<float>&);                                                 \
    void gaussian_sums_f64(const SumArgs<double>&);                                                \
    void placed_f32(const PlaceArgs<float>&);                                                      \
    void placed_f64(const PlaceArgs<double>&);                                                     \
    void scaled_rows_f32(const ScaleArgs<float>&);                                                 \
    void scaled_rows_f64(const ScaleArgs<double>&);                                                \
    void axis_f32(const AxisArgs<float>&);                                                         \
    void axis_f64(const AxisArgs<double>&);                                                        \
    void tap_slopes_f32(const AxisArgs<float>&, double*);                                          \
    void tap_slopes_f64(const AxisArgs<double>&, double*);                                         \
    std::int64_t fused_channels(int);                                                              \
    bool fused_f32(const FusedArgs<float>&);                                                       \
    bool fused_f64(const FusedArgs<double>&);                                                      \
    void project_f32(const SimplexArgs<float>&);                                                   \
    void project_f64(const SimplexArgs<double>&);                                                  \
    void project_derivative_f32(const SimplexArgs<float>&);                                        \
    void project_derivative_f64(const SimplexArgs<double>&);                                       \
    void softmax_f32(const SimplexArgs<float>&);                                                   \
    void softmax_f64(const SimplexArgs<double>&);                                                  \
    void softmax_derivative_f32(const SimplexArgs<float>&);                                        \
    void softmax_derivative_f64(const SimplexArgs<double>&);                                       \
    Extent energies_f32(const EnergyArgs<float>&);                                                 \
    Extent energies_f64(const EnergyArgs<double>&);                                                \
    bool edge_sum_f32(const EdgeArgs<float>&);                                                     \
    bool edge_sum_f64(const EdgeArgs<double>&);                                                    \
    bool table_sum_f32(const TableArgs<float>&);                                                   \
    bool table_sum_f64(const TableArgs<double>&);                                                  \
    void edge_inner_f32(const PairArgs<float>&);                                                   \
    void edge_inner_f64(const PairArgs<double>&);                                                  \
    void edge_outer_f32(const PairArgs<float>&);                                                   \
    void edge_outer_f64(const PairArgs<double>&);                                                  \
    void transpose_f32(const TurnArgs<float>&);                                                    \
    void log_line_f32(const TurnArgs<float>&);                                                     \
    void log_line_derivative_f32(const TurnArgs<float>&);                                          \
    void transpose_f64(const TurnArgs<double>&);                                                   \
    void log_line_f64(const TurnArgs<double>&);                                                    \
    void log_line_derivative_f64(const TurnArgs<double>&);                                         \
    void spans_f32(const SpanArgs<float>&);                                                        \
    void spans_f64(const SpanArgs<double>&);                                                       \
    void lump_f32(const LumpArgs<float>&);                                                         \
    void lump_f64(const LumpArgs<double>&);                                                        \
    void unlump_f32(const LumpArgs<float>&);                                                       \
    void unlump_f64(const LumpArgs<double>&);                                                      \
    bool negative_f32(const float*, std::int64_t, float*, int);                                    \
    bool negative_f64(const double*, std::int64_t, double*, int);                                  \
    void largest_f32(const float*, std::int64_t, std::int64_t, std::int64_t*, int);                \
    void largest_f64(const double*, std::int64_t, std::int64_t, std::int64_t*, int);               \
    static const Kernels table{#ISA,                                                               \
                               embed_f32,                                                          \
                               embed_f64,                                                          \
                               embed_single,                                                       \
                               bounds_f32,                                                         \
                               bounds_f64,                                                         \
                               filter_f32,                                                         \
                               filter_f64,                                                         \
                               corner_dots_f32,                                                    \
                               corner_dots_f64,                                                    \
                               diagonal_f32,                                                       \
                               diagonal_f64,                                                       \
                               normal_f32,                                                         \
                               normal_f64,                                                         \
                               gaussian_sums_f32,                                                  \
                               gaussian_sums_f64,                                                  \
                               placed_f32,                                                         \
                               placed_f64,                                                         \
                               scaled_rows_f32,                                                    \
                               scaled_rows_f64,                                                    \
                               axis_f32,                                                           \
                               axis_f64,                                                           \
                               tap_slopes_f32,                                                     \
                               tap_slopes_f64,                                                     \
                               fused_channels(4),                                                  \
                               fused_channels(8),                                                  \
                               fused_f32,                                                          \
                               fused_f64,                                                          \
                               project_f32,                                                        \
                               project_f64,                                                        \
                               project_derivative_f32,                                             \
                               project_derivative_f64,                                             \
                               softmax_f32,                                                        \
                               softmax_f64,                                                        \
                               softmax_derivative_f32,                                             \
                               softmax_derivative_f64,                                             \
                               energies_f32,                                                       \
                               energies_f64,                                                       \
                               edge_sum_f32,                                                       \
                               edge_sum_f64,                                                       \
                               table_sum_f32,                                                      \
                               table_sum_f64,                                                      \
                               edge_inner_f32,                                                     \
                               edge_inner_f64,                                                     \
                               edge_outer_f32,                                                     \
                               edge_outer_f64,                                                     \
                               transpose_f32,                                                      \
                               transpose_f64,                                                      \
                               log_line_f32,                                                       \
                               log_line_f64,                                                       \
                               log_line_derivative_f32,                                            \
                               log_line_derivative_f64,                                            \
                               spans_f32,                                                          \
                               spans_f64,                                                          \
                               lump_f32,                                                           \
                               lump_f64,                                                           \
                               unlump_f32,                                                         \
                               unlump_f64,                                                         \
                               negative_f32,                                                       \
                               negative_f64,                                                       \
                               largest_f32,                                                        \
                               largest_f64};                                                       \
    }

FWCRF_DECLARE(generic)
#ifdef FWCRF_HAVE_AVX2
FWCRF_DECLARE(avx2)
#endif
#ifdef FWCRF_HAVE_AVX512
FWCRF_DECLARE(avx512)
#endif

static const Kernels& choose() {
    const char* wish = std::getenv("FWCRF_ISA");
    const auto allowed = [wish](const char* isa) { return !wish || !std::strcmp(wish, isa); };
#ifdef FWCRF_HAVE_AVX512
    // Zen 4 takes vectors of 64 bytes in halves: they only make for more padding there.
    if ((wish || !__builtin_cpu_is("amdfam19h")) && allowed("avx512") && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw"))
        return avx512::table;
#endif
#ifdef FWCRF_HAVE_AVX2
    if ((allowed("avx2") || allowed("avx512")) && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma"))
        return avx2::table;
#endif
    (void)allowed;
    return generic::table;
}

const Kernels& kernels() {
    static const Kernels& table = choose();
    return table;
}

}  // namespace fwcrf
