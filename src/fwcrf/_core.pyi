from collections.abc import Sequence
from typing import Any

class Exporter: ...

def isa() -> str: ...
def isa_for_rows(bytes: int) -> str: ...
def openmp() -> bool: ...
def max_threads() -> int: ...
def order_words(corners: int) -> int: ...
def quotient_range(lowest: Any, highest: Any, scale: Any) -> tuple[list[int], list[int]]: ...
def threads_for(work: int, most: int) -> int: ...
def set_threads(threads: int) -> None: ...
def maps() -> list[str]: ...
def duals() -> list[str]: ...
def empty(bytes: int) -> Any: ...
def bilateral_features(values: Any, sizes: Any, inverse: Any, out: Any, threads: int) -> bool: ...
def feature_bounds(features: Any) -> tuple[bool, list[float], list[float]]: ...
def build_lattice(
    features: Any,
    scale: Any,
    low: Any,
    high: Any,
    index: Any,
    weight: Any,
    order: Any,
    threads: int,
    single: bool = False,
) -> Any: ...
def image_lattice(
    values: Any,
    sizes: Sequence[int],
    scales: Sequence[float],
    origin: Sequence[int],
    scale: Sequence[float],
    points: Any,
    rows: int,
    place: float,
    constant: float,
    tap: float,
    identity: float,
    least: float,
    most: float,
    index: Any,
    weight: Any,
    shift: Any,
    minus: Any,
    threads: int,
) -> Any: ...
def best_labels(unary: Any, window: Any, best: Any, labels: Any, threads: int) -> None: ...
def rarity(unary: Any, window: Any, floor: float, rare: Any, threads: int) -> None: ...
def normalized_weights(
    index: Any,
    weight: Any,
    neighbors: Any,
    tap: float,
    normalization: int,
    gain: float,
    least: float,
    times: float,
    splat: Any,
    slice: Any,
    threads: int,
) -> None: ...
def filter(
    x: Any,
    index: Any,
    splat: Any,
    slice: Any,
    neighbors: Any,
    shift: Any,
    tap: float,
    identity: float,
    order: int,
    out: Any,
    threads: int,
) -> bool: ...
def corner_dots(
    left: Any,
    x: Any,
    matrix: Any,
    index: Any,
    splat: Any,
    neighbors: Any,
    tap: float,
    identity: float,
    order: int,
    dots: Any,
    products: Any,
    threads: int,
) -> None: ...
def embedding_adjoint(of_weight: Any, order: Any, scale: Any, of_features: Any, threads: int) -> None: ...
def band_products(left: Any, right: Any, labels: int, reach: int, sums: Any, threads: int) -> None: ...
def row_products(left: Any, x: Any, matrix: Any, out: Any, threads: int) -> None: ...
def shrink_lines(x: Any, band: tuple[Any, Any], out: Any, threads: int) -> None: ...
def shrink_axis(x: Any, band: tuple[Any, Any], out: Any, threads: int) -> None: ...
def diagonal(
    index: Any,
    weight: Any,
    order: Any,
    neighbors: Any,
    tap: float,
    identity: float,
    out: Any,
    slopes: Any,
    threads: int,
) -> None: ...
def normalize(
    index: Any,
    weight: Any,
    order: Any,
    neighbors: Any,
    factor: Any,
    exponent: float,
    tap: float,
    identity: float,
    out: Any,
    shift: Any,
    minus: Any,
    threads: int,
) -> tuple[float, float]: ...
def gaussian_sums(rows: Any, columns: Any, out: Any, threads: int) -> None: ...
def sampled_sums(
    features: Any,
    points: Any,
    rows: int,
    index: Any,
    weight: Any,
    neighbors: Any,
    exponent: float,
    tap: float,
    identity: float,
    order: int,
    exact: Any,
    own: Any,
    threads: int,
) -> None: ...
def placed(weight: Any, factor: Any, exponent: float, out: Any, threads: int) -> None: ...
def scaled_rows(
    weight: Any, factor: Any, out: Any, diagonals: Sequence[Any], scaled: Sequence[Any], threads: int
) -> None: ...
def filter_axis(x: Any, taps: Any, out: Any, threads: int) -> None: ...
def tap_slopes(g: Any, x: Any, out: Any, threads: int) -> None: ...
def label_spans(x: Any, unary: Any, gap: Any, most: Any, threads: int) -> None: ...
def take_labels(x: Any, which: Any, out: Any, threads: int) -> None: ...
def spread_labels(x: Any, which: Any, out: Any, threads: int) -> None: ...
def merge_labels(
    x: Any, unary: Any, kept: Any, scale: float, few: Any, few_unary: Any, threads: int
) -> None: ...
def unmerge_labels(
    unary: Any, kept: Any, scale: float, few: Any, few_unary: Any, out: Any, threads: int
) -> None: ...
def argmax(x: Any, out: Any, threads: int) -> None: ...
def transpose_and_argmax(x: Any, out: Any, largest: Any, threads: int) -> None: ...
def energies(
    scores: Any,
    last: bool,
    probabilities: bool,
    least: float,
    out: Any,
    threads: int,
    slope: float = 1.0,
    offset: Any = None,
) -> tuple[bool, float, float, float, float]: ...
def transpose_blend_log(
    x: Any, y: Any, share: float, slope: float, offset: float, out: Any, threads: int
) -> None: ...
def blend_log_derivative(
    g: Any, x: Any, y: Any, share: float, slope: float, offset: float, of_x: Any, of_y: Any, threads: int
) -> float: ...
def transpose_and_sum(x: Any, beside: Any, factor: float, out: Any, sums: Any, threads: int) -> None: ...
def transpose_log(x: Any, slope: float, offset: float, out: Any, threads: int) -> None: ...
def transpose_log_derivative(g: Any, x: Any, slope: float, offset: float, out: Any, threads: int) -> None: ...
def transpose(x: Any, out: Any, threads: int, factor: float = 1.0) -> None: ...
def project(v: Any, scale: float, out: Any, threads: int) -> None: ...
def project_derivative(d: Any, p: Any, scale: float, out: Any, threads: int) -> None: ...
def softmax(v: Any, scale: float, out: Any, threads: int) -> None: ...
def softmax_derivative(d: Any, p: Any, scale: float, out: Any, threads: int) -> None: ...
def adjacency(edges: Any, first: Any, neighbor: Any, slot: Any) -> None: ...
def levels(first: Any, neighbor: Any, level: Any) -> int: ...
def selected_inverse(first: Any, row: Any, factor: Any, pivot: Any, inverse: Any, diagonal: Any) -> None: ...
def edge_sum(
    x: Any,
    unary: Any,
    weight: Any,
    matrix: Any,
    potts: bool,
    turned: float,
    first: Any,
    neighbor: Any,
    slot: Any,
    out: Any,
    threads: int,
) -> bool: ...
def table_sum(
    x: Any, unary: Any, tables: Any, first: Any, neighbor: Any, slot: Any, out: Any, threads: int
) -> bool: ...
def edge_inner(a: Any, b: Any, edges: Any, turned: float, out: Any, threads: int) -> None: ...
def edge_outer(a: Any, b: Any, edges: Any, out: Any, threads: int) -> None: ...
def graph_descent(
    unary: Any,
    x: Any,
    weight: Any,
    matrix: Any,
    tables: Any,
    first: Any,
    neighbor: Any,
    slot: Any,
    max_sweeps: int,
    restarts: int,
    seed: int,
    out: Any,
    threads: int,
) -> None: ...

class SpreadsF32:
    def array(self, image: int, step: int, term: int) -> Any: ...
    def steps(self) -> int: ...

class SpreadsF64(SpreadsF32): ...

class ModelF32:
    @staticmethod
    def most_labels() -> int: ...
    @staticmethod
    def lanes() -> int: ...
    @staticmethod
    def row(labels: int) -> int: ...
    def add_lattice(
        self,
        index: Any,
        splat: Any,
        slice: Any,
        neighbors: Any,
        shift: Any,
        tap: float,
        identity: float,
        order: int,
    ) -> None: ...
    def add_grid(
        self,
        sizes: list[int],
        between: list[int],
        down: list[tuple[Any, Any]],
        middle: list[tuple[Any, Any] | None],
        up: list[tuple[Any, Any]],
        direct: tuple[Any, Any, Any],
        shift: Any,
    ) -> None: ...
    def run(
        self,
        x: Any,
        before: tuple[int, float, Any, Any, float] | None,
        unary: Any,
        potts: Any,
        matrices: Any,
        moves: Any,
        outs: list[Any | None],
        others: list[Any],
        sum: Any,
        dual: Any,
        slopes: Any,
        noted: bool,
        threads: int,
        goals: list[Any | None],
        points: list[Any],
        rates: Any,
        tolerance: float = 0.0,
        spreads: SpreadsF32 | None = None,
        point_spreads: SpreadsF32 | None = None,
        tables: Sequence[tuple[Any, ...]] = (),
    ) -> tuple[bool, float, float, list[int]]: ...

class ModelF64(ModelF32): ...

class GraphModel:
    def __init__(
        self,
        unary: Any,
        shape: int,
        weight: Any,
        matrix: Any,
        tables: Any,
        truncation: float,
        first: Any,
        neighbor: Any,
        slot: Any,
    ) -> None: ...
    def trws(
        self,
        messages: Any,
        iterations: int,
        seconds: float,
        tolerance: float,
        labels: Any,
        bounds: Any,
        threads: int,
        forward: Any = None,
    ) -> tuple[int, float, float, bool]: ...
    def cut(self, seconds: float, labels: Any) -> float | None: ...
    def typical_cost(self) -> float: ...
    def energy(self, labels: Any) -> float: ...
    def expand(self, cycles: int, seconds: float, labels: Any) -> int: ...
    def eliminate(self, most: float, total: float, seconds: float, labels: Any) -> float | None: ...
    def balls(
        self, count: int, nodes: int, entries: float, seed: int, seconds: float, labels: Any
    ) -> float: ...
    def branch(
        self, sweeps: int, visits: int, margin: float, seconds: float, labels: Any
    ) -> tuple[bool, float]: ...
    def patches(
        self, count: int, nodes: int, visits: int, seed: int, seconds: float, labels: Any
    ) -> float: ...
    def propagate(self, forbidden: Any, allowed: Any) -> bool: ...
    def repair(self, forbidden: Any, moves: int, seed: int, seconds: float, labels: Any) -> int: ...
    def take_better_parts(self, other: Any, labels: Any) -> float: ...
    def sweep(self, weights: Any, steps: Any, seconds: float, x: Any) -> bool: ...
    def kick(self, restarts: int, seed: int, seconds: float, labels: Any) -> None: ...
