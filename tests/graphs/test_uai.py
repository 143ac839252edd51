"""Models in files."""

import gzip
import itertools

import numpy as np
import pytest
import torch
from graph_models import EDGES, POTENTIALS, L, M, N, best, labellings, model, random_model
from helpers import normal
from hypothesis import given
from hypothesis import strategies as st

from fwcrf import SparseMRF, read_uai, write_uai
from fwcrf.apps.cli.app import app
from fwcrf.apps.files import FileError

# Variables of 2, 3 and 2 labels; a factor of each order, one of them the wrong way round, and two alike.
MIXED = """MARKOV
3
2 3 2
6
1 0
2 1 0
2 0 1
0
2 1 2
1 0

2
 0.25 0.75
6
 1 2
 3 4
 5 6
6
 1 1 2
 0 1 1
1
 0.5
6
 1 2 3 4 5 6
2 1 4
"""


@pytest.fixture
def saved(tmp_path):
    def save(text, name="a.uai"):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path / name

    return save


def by_hand(labels):
    """The product of the factors of MIXED."""
    a, b, c = labels
    tables = [
        [0.25, 0.75][a],
        [[1, 2], [3, 4], [5, 6]][b][a],
        [[1, 1, 2], [0, 1, 1]][a][b],
        0.5,
        [[1, 2], [3, 4], [5, 6]][b][c],
        [1, 4][a],
    ]
    return float(np.prod(tables))


@pytest.mark.parametrize("kind", ["MARKOV", "BAYES", "markov"])
@pytest.mark.parametrize("packed", [False, True])
def test_values_are_products_of_the_factors(saved, kind, packed):
    text = MIXED.replace("MARKOV", kind).encode()
    mrf = read_uai(saved(gzip.compress(text) if packed else text))
    assert mrf.unary.dtype == torch.float64
    assert mrf.edges.tolist() == [[0, 1], [1, 2]]
    assert mrf.cardinalities.tolist() == [2, 3, 2]
    assert mrf.constant == pytest.approx(np.log(2))
    for labels in labellings(mrf).tolist():
        energy = float(mrf.value(torch.tensor(labels)))
        if all(s < size for s, size in zip(labels, (2, 3, 2), strict=True)):
            assert np.exp(-energy) == pytest.approx(by_hand(labels), abs=1e-12)
        else:
            assert energy == torch.inf
    assert float(mrf.solve(restarts=5).energy) == pytest.approx(best(mrf))


@pytest.mark.parametrize(
    ("text", "known"),
    [("1 0 1", {0: 1}), ("1\n2 0 0 2 1", {0: 0, 2: 1}), ("2\n0 0\n1 2\n", {0: 0, 1: 2}), ("0", {}), ("", {})],
)
def test_evidence(saved, text, known):
    path = saved(MIXED)
    from_file, from_dict = read_uai(path, saved(text, "a.evid")), read_uai(path, known)
    assert torch.equal(from_file.unary, from_dict.unary)
    found = from_file.solve(restarts=5)
    every = labellings(from_file)
    fits = torch.stack([every[:, i] == s for i, s in known.items()] or [every[:, 0] >= 0]).all(0)
    assert all(found.labels[i] == s for i, s in known.items())
    whole = read_uai(path)
    assert float(found.energy) == pytest.approx(float(whole.value(every[fits]).min()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 3 0", r"a.evid, line 1: '3'; expected a variable, a whole number from 0 to 2"),
        ("1 0 2", "'2'; expected a label of variable 0, a whole number from 0 to 1"),
        ("2 0 1", "truncated: .* after 2 of 4 numbers expected for 2 known variables"),
        ("1 0 1 7", "'7'; expected the end of the file"),
        ("9", "expected the number of known variables"),
        ("1 x 1", "'x'; expected a number"),
    ],
)
def test_evidence_that_is_wrong(saved, text, message):
    with pytest.raises(FileError, match=message):
        read_uai(saved(MIXED), saved(text, "a.evid"))


def test_evidence_by_hand_that_is_wrong(saved):
    with pytest.raises(ValueError, match="variable 1 has label 3; expected"):
        read_uai(saved(MIXED), {1: 3})


START = "MARKOV\n2\n2 2\n1\n2 0 1\n"
WRONG = {
    "empty": ("", "is empty"),
    "blank": (" \n", "is empty"),
    "another word": ("NOISE\n1", "line 1: 'NOISE'; expected MARKOV or BAYES"),
    "nothing after it": ("MARKOV", "truncated: .*the number of variables"),
    "variables": ("MARKOV\n0", "line 2: '0'; expected the number of variables"),
    "few sizes": ("MARKOV\n99999999\n2 2", "after 2 of 99999999 numbers"),
    "size": ("MARKOV\n2\n2 0\n", "line 3: '0'; expected a number of labels"),
    "fraction": ("MARKOV\n2\n2 1.5\n", "line 3: '1.5'; expected a number of labels"),
    "absurd size": ("MARKOV\n1\n2000000000\n0", "would take 16 GB of memory"),
    "absurd sizes": ("MARKOV\n2\n40000 40000\n1\n2 0 1\n1600000000\n1 1", "after 2 of 1600000000 numbers"),
    "factors": ("MARKOV\n1\n2\n-1", "line 4: '-1'; expected the number of factors"),
    "absurd factors": ("MARKOV\n1\n2\n2000000000\n1 0", "after 2 of 2000000000"),
    "higher order": (
        f"MARKOV\n3\n7 7 7\n1\n3 0 1 2\n343 {'1 ' * 343}",
        "'343'; expected at most 256 joint labellings of the 3 variables of factor 0, which has 343",
    ),
    "higher order, cut": ("MARKOV\n3\n2 2 2\n1\n3 0 1 2\n8 1 1 1 1 1 1 1", "after 7 of 8 numbers"),
    "higher order, variable": ("MARKOV\n3\n2 2 2\n1\n3 0 1 3\n8", "'3'; expected a variable"),
    "higher order, twice": ("MARKOV\n3\n2 2 2\n1\n3 0 1 0\n8", "names this one twice"),
    "nothing allowed": (f"MARKOV\n3\n2 2 2\n1\n3 0 1 2\n8 {'0 ' * 8}", "factor 0 forbids all"),
    "order": ("MARKOV\n1\n2\n1\n0.5 1", "line 5: '0.5'; expected the number of variables of factor 0"),
    "variable": (
        "MARKOV\n2\n2 2\n1\n2 0 2\n",
        "line 5: '2'; expected a variable, .*from 0 to 1",
    ),
    "no variable": ("MARKOV\n2\n2 2\n1\n2 0", "truncated"),
    "twice": ("MARKOV\n2\n2 2\n1\n2 1 1\n4 1 1 1 1", "names this one twice"),
    "table size": (START + "5\n1 1 1 1 1", "line 6: '5'; expected 4, the size of the table of factor 0"),
    "no table": (START, "truncated: .*the size of the table of factor 0"),
    "short table": (
        START + "4\n1 1 1",
        "ends at line 7, after 3 of 4 numbers .*the table of factor 0",
    ),
    "negative": (START + "4\n1 1\n-1 1", "line 8: '-1'; expected a finite value of at least 0"),
    "infinite": (START + "4\n1 1\n1e999 1", "line 8: '1e999'"),
    "infinitely many variables": (
        "MARKOV\n2\n2 2\n1\n1e999 0 1\n4\n1 1 1 1",
        "number of variables of factor 0",
    ),
    "NaN": (START + "4\n1 1 nan 1", "line 7: 'nan'; expected a number"),
    "word": (START + "4\n1 1 one 1", "line 7: 'one'; expected a number"),
    "half a number": (START + "4\n1 1 1x 1", "line 7: '1x'; expected a number"),
    "bytes": (START.encode() + b"4\n1 \xff\x00 1 1", "line 7: .*expected a number"),
    "more": (START + "4\n1 1 1 1\n7", "line 8: '7'; expected the end of the file"),
    "impossible": ("MARKOV\n1\n2\n1\n1 0\n2 0 0", "leaves no label to variable 0"),
    "zero": ("MARKOV\n1\n2\n1\n0\n1 0", "a factor without variables that is 0"),
    "half a gzip": (gzip.compress(MIXED.encode())[:60], "cannot be read"),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_are_wrong(saved, case):
    text, message = WRONG[case]
    with pytest.raises(FileError, match=message):
        read_uai(saved(text))


@given(st.integers(0, len(MIXED) - 3))
def test_a_file_cut_anywhere_is_refused_or_complete(length):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.uai"
        path.write_text(MIXED[:length])
        with pytest.raises(FileError):
            read_uai(path)


def test_folders_absent_files_and_limits(tmp_path, saved):
    with pytest.raises(FileError, match="is a folder"):
        read_uai(tmp_path)
    with pytest.raises(FileError, match="cannot be read: No such file"):
        read_uai(tmp_path / "none.uai")
    with pytest.raises(FileError, match="more than 50 bytes of text"):
        read_uai(saved(gzip.compress(MIXED.encode())), limit=50)
    many = "MARKOV\n3\n1 1 90\n2\n2 0 1\n2 1 2\n1 1\n90 " + "1 " * 90
    with pytest.raises(FileError, match=r"\(2, 90, 90\) would take 130 kB"):
        read_uai(saved(many), limit=100_000)


@pytest.mark.parametrize("kind", POTENTIALS)
@pytest.mark.parametrize("name", ["a.uai", "a.uai.gz"])
def test_there_and_back(tmp_path, kind, name):
    mrf = model(kind)
    write_uai(tmp_path / name, mrf)
    assert (tmp_path / name).read_bytes()[:2] == (b"\x1f\x8b" if name.endswith("gz") else b"MA")
    back = read_uai(tmp_path / name)
    every = labellings(mrf)
    assert torch.allclose(mrf.value(every), back.value(every), rtol=0, atol=1e-12)
    write_uai(tmp_path / "again.uai", back)
    again = read_uai(tmp_path / "again.uai")
    assert torch.equal(back.edges, again.edges)
    assert torch.allclose(back.tables(), again.tables(), rtol=0, atol=1e-14)


def test_there_and_back_with_everything(saved, tmp_path):
    mrf = read_uai(saved(MIXED))
    write_uai(tmp_path / "b.uai", mrf)
    back = read_uai(tmp_path / "b.uai")
    assert back.cardinalities.tolist() == [2, 3, 2]
    every = labellings(mrf)
    assert torch.allclose(mrf.value(every), back.value(every), rtol=0, atol=1e-13)
    sparse = random_model(4)
    write_uai(tmp_path / "c.uai", sparse)
    every = labellings(sparse)
    assert torch.allclose(sparse.value(every), read_uai(tmp_path / "c.uai").value(every), atol=1e-12)


def test_large_energies_are_shifted_into_range(tmp_path):
    mrf = SparseMRF(normal(N, L) + 40, EDGES, normal(M, L, L) + 900, constant=-7300.0)
    write_uai(tmp_path / "a.uai", mrf)
    every = labellings(mrf)
    assert torch.allclose(mrf.value(every), read_uai(tmp_path / "a.uai").value(every), rtol=0, atol=1e-9)


def test_large_ranges_become_several_factors(tmp_path):
    unary, tables = 1000 * normal(N, L), 3000 * normal(M, L, L)
    unary[0, 0] = tables[2, 1, 1] = torch.inf
    mrf = SparseMRF(unary, EDGES, tables, constant=3.0)
    write_uai(tmp_path / "a.uai", mrf)
    every = labellings(mrf)
    back = read_uai(tmp_path / "a.uai")
    assert back.num_edges == 6  # parallel edges add up
    torch.testing.assert_close(mrf.value(every), back.value(every), rtol=1e-12, atol=1e-9)


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.uai"
    path.write_text("before")
    with pytest.raises(ValueError, match="expected at most 60000 between them"):
        write_uai(path, SparseMRF(1e6 * normal(N, L), EDGES, 1.0))
    with pytest.raises(ValueError, match="has a constant of 100000;"):
        write_uai(path, SparseMRF(normal(N, L), EDGES, 1.0, constant=1e5))
    with pytest.raises(ValueError, match="one model, not a batch"):
        write_uai(path, SparseMRF(normal(2, N, L), EDGES, 1.0))
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["a.uai"]
    with pytest.raises(FileError, match="there is no folder"):
        write_uai(tmp_path / "no" / "a.uai", model("weights"))


def test_a_large_file(tmp_path):
    """200,000 edges, read without a loop over tables."""
    n = 100_000
    generator = torch.Generator().manual_seed(0)
    edges = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n], -1)
    edges = torch.cat([edges, torch.stack([torch.arange(n), (torch.arange(n) + 7) % n], -1)])
    mrf = SparseMRF(
        torch.randn(n, 2, generator=generator).double(), edges, torch.randn(len(edges), generator=generator)
    )
    write_uai(tmp_path / "a.uai", mrf)
    back = read_uai(tmp_path / "a.uai")
    labels = torch.randint(0, 2, (n,), generator=generator)
    assert back.num_edges == 2 * n
    assert float(back.value(labels)) == pytest.approx(float(mrf.value(labels)), rel=1e-9)


def _higher(seed, logarithms=False):
    """A model with factors over 0 to 4 variables, as text, and its energies of all labellings."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 4, 5)
    scopes = [generator.permutation(5)[: generator.integers(0, 5)] for _ in range(7)]
    values = [generator.random(tuple(sizes[scope])) + 0.1 for scope in scopes]
    for table in values:
        if table.ndim > 1:
            table[generator.random(table.shape) < 0.15] = 0.0
            table.flat[0] = 0.5
    with np.errstate(divide="ignore"):
        written_ = [np.log(table) if logarithms else table for table in values]
        every = {
            labels: -sum(
                np.log(t[tuple(labels[v] for v in scope)]) for t, scope in zip(values, scopes, strict=True)
            )
            for labels in itertools.product(*map(range, sizes))
        }
    lines = ["MARKOV", "5", " ".join(map(str, sizes)), "7"]
    lines += [" ".join(map(str, [len(scope), *scope])) for scope in scopes]
    lines += [f"{table.size}\n{' '.join(map(repr, table.ravel().tolist()))}" for table in written_]
    return "\n".join(lines), every


@pytest.mark.parametrize("seed", range(8))
def test_factors_of_higher_order_are_exact(tmp_path, seed):
    text, every = _higher(seed)
    (tmp_path / "a.uai").write_text(text)
    mrf = read_uai(tmp_path / "a.uai")
    found = mrf.solve()
    assert bool(found.proven) and float(found.energy) == pytest.approx(min(every.values()), abs=1e-9)
    labels = tuple(found.labels[: mrf.num_nodes - mrf.auxiliary].tolist())
    assert every[labels] == pytest.approx(min(every.values()), abs=1e-9)
    # Known labels are put into the factors, which may then need no node.
    known = {0: 0, 3: 0}
    allowed = [e for labels, e in every.items() if labels[0] == labels[3] == 0]
    less = read_uai(tmp_path / "a.uai", evidence=known)
    assert less.auxiliary <= mrf.auxiliary
    assert float(less.solve().energy) == pytest.approx(min(allowed), abs=1e-9)


def test_logarithms(tmp_path):
    text, every = _higher(3, logarithms=True)
    (tmp_path / "a.uai.LG").write_text(text)
    assert float(read_uai(tmp_path / "a.uai.LG").solve().energy) == pytest.approx(
        min(every.values()), abs=1e-9
    )
    with gzip.open(tmp_path / "a.LG.gz", "wt") as file:
        file.write(text)
    assert read_uai(tmp_path / "a.LG.gz").auxiliary == read_uai(tmp_path / "a.uai.LG").auxiliary
    (tmp_path / "b.LG").write_text("MARKOV\n1\n2\n1\n1 0\n2 -1000 inf")
    with pytest.raises(FileError, match="'inf'; expected a finite logarithm or -inf"):
        read_uai(tmp_path / "b.LG")


def test_the_command_prints_the_variables_of_the_file(tmp_path, capsys):
    text, every = _higher(1)
    (tmp_path / "a.uai").write_text(text)
    assert read_uai(tmp_path / "a.uai").auxiliary > 0
    app(["map", str(tmp_path / "a.uai")], standalone_mode=False)
    count, *labels = map(int, capsys.readouterr().out.split()[1:])
    assert count == len(labels) == 5
    assert every[tuple(labels)] == pytest.approx(min(every.values()), abs=1e-9)
