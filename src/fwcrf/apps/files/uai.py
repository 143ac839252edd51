"""Models in the format of the UAI competitions.

A factor is a table of non-negative values, and the model is the product of its factors. An energy is
-log(value); files ``.LG`` have the natural logarithms of the values. Factors of the same variables add up;
factors without variables go into the constant; factors over more than two variables become auxiliary nodes.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fwcrf.apps.files.atomic import check_writable, writing
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.limits import DEFAULT_LIMIT, check_size
from fwcrf.apps.files.uai_higher import MOST_LABELLINGS, Pairwise
from fwcrf.apps.files.uai_text import Numbers, read_numbers
from fwcrf.graphs.mrf import SparseMRF

# Largest range of a factor's energies: exp(-E) stays a normal float64 even with 100 more of the constant. A
# larger range is written as several equal factors, whose energies add up.
_LARGEST = 600.0
_MOST_PARTS = 100
# Number of tables formatted before a write.
_AT_ONCE = 20_000


def read_uai(
    path: Path | str,
    evidence: Path | str | Mapping[int, int] | None = None,
    *,
    limit: int = DEFAULT_LIMIT,
) -> SparseMRF:
    """A model from a ``.uai`` file, MARKOV or BAYES, gzipped or not, in float64.

    ``evidence`` is a ``.evid`` file, or a dict of labels by variable; it forbids all other labels of these
    variables. A value of 0 is an energy of +inf. If the name ends in ``.LG``, the tables have natural
    logarithms. A factor over three or more variables becomes a node at the end of the model, exact, with a
    label per allowed joint labelling: ``auxiliary`` of the model is the number of such nodes. Raises for
    factors of more than 256 joint labellings, and for a model of more than ``limit`` bytes.
    """
    _, numbers = read_numbers(path, ("MARKOV", "BAYES"), limit)
    path = Path(path)
    numbers = replace(numbers, logarithms=path.name.lower().removesuffix(".gz").endswith(".lg"))
    n = int(numbers.integers(0, 1, "the number of variables", 1, 2**31 - 1)[0])
    sizes = numbers.integers(1, n, "a number of labels", 1, 2**31 - 1)
    count = int(numbers.integers(1 + n, 1, "the number of factors", 0, 2**31 - 1)[0])
    check_size(path, (n, int(sizes.max())), 8, limit)
    scopes, higher, at = _scopes(numbers, 2 + n, count, n)
    tables, end = _tables(numbers, at, scopes, higher, sizes)
    if end < len(numbers.values):
        numbers.refuse(end, "the end of the file after the last table")
    known = _evidence(evidence, n, sizes, limit)
    extra = _pairwise(numbers, higher, tables, sizes, known)

    arity = (scopes >= 0).sum(1)
    arity[list(higher)] = -1
    total = n + len(extra.auxiliary)
    L = max([int(sizes.max()), *(len(costs) for costs in extra.auxiliary)])
    check_size(path, (total, L), 8, limit)
    unary = np.full((total, L), np.inf)
    unary[:n] = np.where(np.arange(L) < sizes[:, None], 0.0, np.inf)
    for node, costs in enumerate(extra.auxiliary, n):
        unary[node, : len(costs)] = costs
    for variable, costs in extra.unary:
        unary[variable, : len(costs)] += costs
    constant = float(_energies(numbers, tables[arity == 0], 1).sum()) + extra.constant
    if not np.isfinite(constant):
        raise FileError(f"{path} has a factor without variables that is 0; expected a positive value.")
    for size, chosen in _groups(arity == 1, sizes[scopes[:, 0]]):
        np.add.at(unary, (scopes[chosen, 0], slice(size)), _energies(numbers, tables[chosen], size))  # type: ignore[arg-type]
    pair = arity == 2
    edges, which = _edges(scopes[pair], n)
    check_size(path, (len(edges) + len(extra.pairs), L, L), 8, limit)
    pairwise = np.zeros((len(edges) + len(extra.pairs), L, L))
    _add_pairs(pairwise[: len(edges)], which, scopes[pair], tables[pair], sizes, numbers)
    for place, (_, _, costs) in enumerate(extra.pairs, len(edges)):
        pairwise[place, : costs.shape[0], : costs.shape[1]] = costs
    ends = np.array([pair[:2] for pair in extra.pairs], dtype=np.int64).reshape(-1, 2)

    for variable, label in known.items():
        kept = unary[variable, label]
        unary[variable] = np.inf
        unary[variable, label] = kept
    impossible = np.isinf(unary).all(1)
    if impossible.any():
        raise FileError(
            f"{path} leaves no label to variable {int(impossible.argmax())}: factors and evidence forbid all."
        )
    return SparseMRF(
        torch.from_numpy(unary),
        torch.from_numpy(np.concatenate([edges, ends])),
        torch.from_numpy(pairwise),
        constant=constant,
        cardinalities=torch.from_numpy(
            np.concatenate([sizes, [len(c) for c in extra.auxiliary]]).astype(np.int64)
        ),
        auxiliary=len(extra.auxiliary),
    )


def write_uai(path: Path | str, mrf: SparseMRF) -> None:
    """Write a model as MARKOV, atomically; gzipped if the name ends in ``.gz``.

    ``read_uai`` restores the energies up to rounding of float64. A constant is spread over the unary factors.
    """
    if mrf.unary.dim() != 2 or mrf.tables().dim() != 3:
        raise ValueError(
            f"unary has shape {tuple(mrf.unary.shape)}; expected (n, L): a file has one model, not a batch."
        )
    check_writable(path)
    sizes = _sizes(mrf)
    unary, pairwise = (t.detach().cpu().double().numpy() for t in (mrf.unary, mrf.given_tables()))
    edges = mrf.edges.cpu().numpy()
    nodes = np.arange(len(unary))
    (nodes, unary), (edges, pairwise) = _within_range(((nodes, unary), (edges, pairwise)), mrf.constant)
    with writing(path) as file:
        packed = str(path).endswith(".gz")
        out = gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) if packed else file
        for piece in _pieces(sizes, nodes, edges, np.exp(-unary), np.exp(-pairwise)):
            out.write(piece.encode())
        if packed:
            out.close()


_Higher = dict[int, tuple[int, ...]]  # variables by factor


def _scopes(numbers: Numbers, at: int, count: int, n: int) -> tuple[np.ndarray, _Higher, int]:
    """The variables of each factor, (count, 2) filled up with -1; larger scopes; where the tables begin."""
    numbers.take(at, count, f"the variables of {count} factors")  # at least one number each
    scopes = np.full((count, 2), -1, dtype=np.int64)
    higher: _Higher = {}
    starts, place = [0] * count, at
    # As a list, because single items of an array are slow; longer if there are larger scopes.
    window = numbers.values[at : at + 3 * count].tolist()
    for factor in range(count):
        if place - at >= len(window):
            numbers.take(place, 1, f"the variables of factor {factor}")
            window = numbers.values[at : place + 3 * count].tolist()
        arity = window[place - at]
        starts[factor] = place
        if arity not in (0.0, 1.0, 2.0):
            if not (2 < arity < 64 and arity == int(arity)):
                numbers.refuse(place, f"the number of variables of factor {factor}, at most 63")
            scope = numbers.integers(place + 1, int(arity), "a variable", 0, n - 1).tolist()
            for k, variable in enumerate(scope):
                if variable in scope[:k]:
                    numbers.refuse(place + 1 + k, "another variable: the factor names this one twice")
            higher[factor] = tuple(scope)
        place += 1 + int(arity)
    start = np.array(starts, dtype=np.int64)
    numbers.take(at, place - at, "the variables of the factors")
    arity = numbers.values[start].astype(np.int64) if count else np.empty(0, dtype=np.int64)
    arity[list(higher)] = 0
    for column in range(2):
        has = arity > column
        index = start[has] + 1 + column
        found = numbers.values[index]
        wrong = ~((found >= 0) & (found < n) & (found == np.floor(found)))
        if wrong.any():
            numbers.refuse(int(index[wrong.argmax()]), f"a variable, a whole number from 0 to {n - 1}")
        scopes[has, column] = found
    twice = (arity == 2) & (scopes[:, 0] == scopes[:, 1])
    if twice.any():
        numbers.refuse(int(start[twice.argmax()]) + 2, "another variable: the factor names this one twice")
    return scopes, higher, place


def _tables(
    numbers: Numbers, at: int, scopes: np.ndarray, higher: _Higher, sizes: np.ndarray
) -> tuple[np.ndarray, int]:
    """The index where the values of each factor begin, and the end of the last table."""
    # In float64, because the product of huge sizes would overflow int64.
    entries = np.where(scopes >= 0, sizes[scopes], 1).astype(float).prod(1)
    for factor, scope in higher.items():
        entries[factor] = sizes[list(scope)].astype(float).prod()
    if (entries + 1).sum() > len(numbers.values) - at:
        _shorter(numbers, at, entries)
    expected = entries.astype(np.int64)
    start = at + np.cumsum(expected + 1) - expected
    found = numbers.values[start - 1]
    wrong = found != expected
    if wrong.any():
        factor = int(wrong.argmax())
        numbers.refuse(
            int(start[factor]) - 1, f"{expected[factor]}, the size of the table of factor {factor}"
        )
    return start, int(start[-1] + expected[-1]) if len(start) else at


def _shorter(numbers: Numbers, at: int, entries: np.ndarray) -> None:
    """Raise for the first wrong or truncated table of a file that is too short."""
    for factor, size in enumerate(entries.tolist()):
        found = numbers.take(at, 1, f"the size of the table of factor {factor}")
        if found[0] != size:
            numbers.refuse(at, f"{size:.0f}, the size of the table of factor {factor}")
        numbers.take(at + 1, int(size), f"the table of factor {factor}")
        at += 1 + int(size)


def _pairwise(
    numbers: Numbers, higher: _Higher, tables: np.ndarray, sizes: np.ndarray, known: Mapping[int, int]
) -> Pairwise:
    """The factors over three or more variables as pairwise costs."""
    costs = Pairwise(sizes, known)
    for factor, scope in higher.items():
        count, shape = costs.labellings(scope), tuple(sizes[list(scope)].tolist())
        if count > MOST_LABELLINGS:
            numbers.refuse(
                int(tables[factor]) - 1,
                f"at most {MOST_LABELLINGS} joint labellings of the {len(scope)} variables of factor "
                f"{factor}, which has {count}: only unary, pairwise and small factors are supported",
            )
        energies = _energies(numbers, tables[factor : factor + 1], math.prod(shape)).reshape(shape)
        try:
            costs.add(scope, energies)
        except ValueError:
            raise FileError(
                f"{numbers.path}: factor {factor} forbids all labellings that are left."
            ) from None
    return costs


def _groups(mask: np.ndarray, *sizes: np.ndarray) -> Iterator[tuple]:
    """Yield the masked factors grouped by the sizes of their tables: (*sizes, indices)."""
    chosen = np.flatnonzero(mask)
    if not len(chosen):
        return
    of_chosen = np.stack([s[chosen] for s in sizes], 1)
    if (of_chosen == of_chosen[0]).all():
        yield *of_chosen[0].tolist(), chosen
        return
    kinds, inverse = np.unique(of_chosen, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    for index, kind in enumerate(kinds.tolist()):
        yield *kind, chosen[inverse == index]


def _energies(numbers: Numbers, start: np.ndarray, size: int) -> np.ndarray:
    """-log of the values of tables of equal size, (tables, size)."""
    values = numbers.values[start[:, None] + np.arange(size)]
    good = values < np.inf if numbers.logarithms else (values >= 0) & (values < np.inf)
    if not good.all():
        factor, entry = np.argwhere(~good)[0]
        expected = "a finite logarithm or -inf" if numbers.logarithms else "a finite value of at least 0"
        numbers.refuse(int(start[factor] + entry), expected)
    if numbers.logarithms:
        return 0.0 - values
    with np.errstate(divide="ignore"):
        return 0.0 - np.log(values)


def _edges(scopes: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct pairs (m, 2), smaller variable first, and the index of each factor's pair."""
    low, high = scopes.min(1, initial=n), scopes.max(1, initial=-1)
    keys, which = np.unique(low * n + high, return_inverse=True)
    return np.stack([keys // n, keys % n], 1), which.reshape(-1)


def _add_pairs(
    pairwise: np.ndarray,
    which: np.ndarray,
    scopes: np.ndarray,
    tables: np.ndarray,
    sizes: np.ndarray,
    numbers: Numbers,
) -> None:
    single = len(which) == len(pairwise)
    turned = scopes[:, 0] > scopes[:, 1]
    for direction in (False, True):
        for a, b, chosen in _groups(turned == direction, sizes[scopes[:, 0]], sizes[scopes[:, 1]]):
            costs = _energies(numbers, tables[chosen], a * b).reshape(-1, a, b)
            costs = costs.swapaxes(1, 2) if direction else costs
            place = (which[chosen], slice(costs.shape[1]), slice(costs.shape[2]))
            if single:
                pairwise[place] = costs
            else:
                np.add.at(pairwise, place, costs)  # type: ignore[arg-type]


def _evidence(
    evidence: Path | str | Mapping[int, int] | None, n: int, sizes: np.ndarray, limit: int
) -> dict[int, int]:
    if evidence is None:
        return {}
    if isinstance(evidence, Mapping):
        known = {int(variable): int(label) for variable, label in evidence.items()}
        for variable, label in known.items():
            if not 0 <= variable < n or not 0 <= label < sizes[variable]:
                raise ValueError(
                    f"evidence says that variable {variable} has label {label}; expected variables from 0 to "
                    f"{n - 1} and one of their labels."
                )
        return known
    _, numbers = read_numbers(evidence, (), limit)
    if not len(numbers.values):
        return {}
    # Some files begin with the number of samples, which is 1.
    at = int(
        len(numbers.values) > 1
        and numbers.values[0] == 1
        and len(numbers.values) == 2 + 2 * numbers.values[1]
    )
    count = int(numbers.integers(at, 1, "the number of known variables", 0, n)[0])
    numbers.take(at + 1, 2 * count, f"{count} known variables and their labels")
    if len(numbers.values) > at + 1 + 2 * count:
        numbers.refuse(at + 1 + 2 * count, "the end of the file after the last label")
    known = {}
    for place in range(at + 1, at + 1 + 2 * count, 2):
        variable = int(numbers.integers(place, 1, "a variable", 0, n - 1)[0])
        most = int(sizes[variable]) - 1
        known[variable] = int(numbers.integers(place + 1, 1, f"a label of variable {variable}", 0, most)[0])
    return known


def _sizes(mrf: SparseMRF) -> np.ndarray:
    if mrf.cardinalities is None:
        return np.full(mrf.num_nodes, mrf.num_labels)
    return mrf.cardinalities.cpu().numpy()


_Factors = tuple[np.ndarray, np.ndarray]  # scopes, energies


def _within_range(factors: tuple[_Factors, _Factors], constant: float) -> tuple[_Factors, _Factors]:
    """Unary and pairwise factors of the same total energy, constant included, whose exp(-E) fits float64."""
    rest = constant
    moved: list[_Factors] = []
    for scopes, costs in factors:
        flat = costs.reshape(len(costs), -1)
        finite = np.where(np.isinf(flat), np.nan, flat)
        there = np.isfinite(flat)
        low = np.where(there.any(1), np.where(there, finite, np.inf).min(1, initial=np.inf), 0.0)
        high = np.where(there.any(1), np.where(there, finite, -np.inf).max(1, initial=-np.inf), 0.0)
        size, wide = np.maximum(np.abs(low), np.abs(high)), high - low > _LARGEST
        parts = np.where(wide, np.ceil(np.maximum(size, high - low) / _LARGEST), 1.0)
        if len(flat) and parts.max() > _MOST_PARTS:
            worst = (high - low).argmax()
            raise ValueError(
                f"a factor has energies from {low[worst]:g} to {high[worst]:g}; expected at most "
                f"{_MOST_PARTS * _LARGEST:g} between them: a file stores exp(-energy), which would become 0."
            )
        shift = np.where((size > _LARGEST) & ~wide, low, 0.0)
        rest += float(shift.sum())
        left = (costs - shift.reshape(-1, *[1] * (costs.ndim - 1))) / parts.reshape(
            -1, *[1] * (costs.ndim - 1)
        )
        which = np.repeat(np.arange(len(costs)), parts.astype(np.int64))
        moved.append((scopes, left) if len(which) == len(costs) else (scopes[which], left[which]))
    (nodes, unary), pairs = moved
    share = rest / len(unary)
    if abs(share) > 700 - _LARGEST:
        raise ValueError(
            f"the energy has a constant of {rest:g}; expected at most {700 - _LARGEST:g} per node: a file "
            "stores exp(-energy)."
        )
    return (nodes, unary + share), pairs


def _pieces(
    sizes: np.ndarray, nodes: np.ndarray, edges: np.ndarray, unary: np.ndarray, pairwise: np.ndarray
) -> Iterator[str]:
    n, m = len(nodes), len(edges)
    yield f"MARKOV\n{len(sizes)}\n{' '.join(map(str, sizes.tolist()))}\n{n + m}\n"
    yield "".join(f"1 {i}\n" for i in nodes.tolist())
    yield "".join(f"2 {i} {j}\n" for i, j in edges.tolist())
    yield "\n"
    most = unary.shape[1]
    for begin in range(0, n, _AT_ONCE):
        some = slice(begin, begin + _AT_ONCE)
        rows = zip(sizes[nodes[some]].tolist(), unary[some].tolist(), strict=True)
        yield "".join(_table(row[:size]) for size, row in rows)
    for begin in range(0, m, _AT_ONCE):
        some, (i, j) = pairwise[begin : begin + _AT_ONCE], edges[begin : begin + _AT_ONCE].T
        if (sizes[i] == most).all() and (sizes[j] == most).all():
            yield "".join(map(_table, some.reshape(len(some), -1).tolist()))
        else:
            parts = zip(some, sizes[i], sizes[j], strict=True)
            yield "".join(_table(table[:a, :b].ravel().tolist()) for table, a, b in parts)


def _table(values: list[float]) -> str:
    return f"{len(values)}\n{' '.join(map(repr, values))}\n"
