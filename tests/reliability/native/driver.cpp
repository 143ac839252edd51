// Random calls of the native core without Python, for sanitizers: driver CASES [SEED].
//
// Arrays live on the heap and are exactly as long as they have to be, so that a step beyond one is seen. Finite
// input must give finite output. The last line is a JSON record. Built for libFuzzer, the cases come from there.
#include <chrono>
#include <iterator>

#include "arrays.hpp"
#include "graphs.hpp"
#include "lattices.hpp"

namespace {

using namespace fwcrf;

constexpr struct {
    const char* name;
    void (*run)(Choices&);
} kinds[] = {
    {"simplex_f32", simplex<float>},
    {"simplex_f64", simplex<double>},
    {"lattice_f32", lattice<float>},
    {"lattice_f64", lattice<double>},
    {"grid_f32", grid<float>},
    {"grid_f64", grid<double>},
    {"columns_f32", columns<float>},
    {"columns_f64", columns<double>},
    {"model_f32", model<float>},
    {"model_f64", model<double>},
    {"graph_f32", graph<float>},
    {"graph_f64", graph<double>},
    {"map_methods", map_methods},
    {"inverse", inverse},
    {"memory", blocks},
};

}  // namespace

#ifdef FWCRF_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 3) return 0;
    Choices choices{data[1] * 256u + data[2], data + 3, size - 3};
    kinds[data[0] % std::size(kinds)].run(choices);
    return 0;
}
#else
int main(int count, char** arguments) {
    const std::uint64_t cases = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 10000;
    const std::uint64_t seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 0;
    unsigned long long done[std::size(kinds)] = {};
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t number = 0; number < cases; ++number) {
        Choices choices{seed * 0x2545f4914f6cdd1dull + number};
        const std::uint64_t kind = choices.next() % std::size(kinds);
        kinds[kind].run(choices);
        ++done[kind];
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("{\"target\": \"driver\", \"isa\": \"%s\", \"cases\": %llu", dispatch().isa,
                static_cast<unsigned long long>(cases));
    for (std::size_t kind = 0; kind < std::size(kinds); ++kind)
        std::printf(", \"%s\": %llu", kinds[kind].name, done[kind]);
    std::printf(", \"seconds\": %.1f}\n", seconds);
    return 0;
}
#endif
