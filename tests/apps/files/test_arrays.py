"""numpy's formats: what numpy writes is read, what could do harm is not."""

import io
import pickle
import tracemalloc
import zipfile

import hypothesis
import hypothesis.extra.numpy as nps
import hypothesis.strategies as st
import numpy as np
import pytest

from fwcrf.apps.files import FileError
from fwcrf.apps.files.arrays import read_npy, read_npz, write_npy, write_npz

NUMBERS = st.one_of(
    nps.floating_dtypes(sizes=(16, 32, 64)),
    nps.integer_dtypes(),
    nps.unsigned_integer_dtypes(),
    nps.boolean_dtypes(),
)
ARRAYS = NUMBERS.flatmap(
    lambda dtype: nps.arrays(dtype, nps.array_shapes(min_dims=0, min_side=0, max_side=5))
)


def npy_header(**entries):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f8", "fortran_order": False, "shape": (2,)} | entries
    )
    return file.getvalue()


@hypothesis.given(ARRAYS, st.booleans())
def test_any_array_comes_back(tmp_path_factory, array, fortran_order):
    folder = tmp_path_factory.mktemp("arrays")
    np.save(folder / "a.npy", np.asarray(array, order="F" if fortran_order else "C"))
    np.savez(folder / "a.npz", array)
    for values in (read_npy(folder / "a.npy"), read_npz(folder / "a.npz")[1]):
        np.testing.assert_array_equal(values, array)
        assert values.dtype == array.dtype.newbyteorder("=")
        assert values.dtype.isnative


def test_what_is_written_comes_back_and_is_the_same_each_time(tmp_path):
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T
    for name, write in (("a.npy", write_npy), ("a.npz", lambda file, array: write_npz(file, labels=array))):
        files = io.BytesIO(), io.BytesIO()
        for file in files:
            write(file, array)
        assert files[0].getvalue() == files[1].getvalue()
        (tmp_path / name).write_bytes(files[0].getvalue())
    np.testing.assert_array_equal(read_npy(tmp_path / "a.npy"), array)
    assert read_npz(tmp_path / "a.npz")[0] == "labels"


class Harm:
    def __reduce__(self):
        return exec, ("raise SystemExit('unpickled')",)


def test_nothing_is_unpickled(tmp_path):
    np.save(tmp_path / "a.npy", np.array([Harm()], object), allow_pickle=True)
    np.savez(tmp_path / "a.npz", np.array([Harm()], object))
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Harm()))
    with pytest.raises(FileError, match="Python objects, which are not read because they can run code"):
        read_npy(tmp_path / "a.npy")
    with pytest.raises(FileError, match="Python objects"):
        read_npz(tmp_path / "a.npz")
    with pytest.raises(FileError, match=r"does not start like a \.npy file"):
        read_npy(tmp_path / "b.npy")


def test_other_things_than_numbers_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array(["words"]))
    np.save(tmp_path / "b.npy", np.zeros(2, [("x", "f4"), ("y", "f4")]))
    np.save(tmp_path / "c.npy", np.zeros(2, complex))
    for name in "abc":
        with pytest.raises(FileError, match="expected whole or floating-point numbers"):
            read_npy(tmp_path / f"{name}.npy")


def test_sizes_are_bounded_by_the_header_alone(tmp_path):
    (tmp_path / "a.npy").write_bytes(npy_header(shape=(1 << 40, 3)))
    tracemalloc.start()
    with pytest.raises(FileError, match=r"26388 GB of memory; expected at most 4\.29 GB"):
        read_npy(tmp_path / "a.npy")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    with pytest.raises(FileError, match="expected at most 100 bytes"):
        np.save(tmp_path / "b.npy", np.zeros(100))
        read_npy(tmp_path / "b.npy", limit=100)


def test_negative_and_truncated(tmp_path):
    (tmp_path / "a.npy").write_bytes(npy_header(shape=(-1,)))
    with pytest.raises(FileError, match="no negative numbers"):
        read_npy(tmp_path / "a.npy")
    (tmp_path / "b.npy").write_bytes(npy_header(shape=(2,)) + bytes(10))
    with pytest.raises(FileError, match="truncated: it ends after 10 of 16 bytes"):
        read_npy(tmp_path / "b.npy")


def test_a_bomb_is_not_unpacked(tmp_path):
    """Megabytes of zeros after a header that speaks of two numbers, and after one that tells all."""
    for name, shape in (("small", (2,)), ("large", (1 << 23,))):
        with (
            zipfile.ZipFile(tmp_path / f"{name}.npz", "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("a.npy", "w") as file,
        ):
            file.write(npy_header(shape=shape))
            for _ in range(4):
                file.write(bytes(1 << 24))
    tracemalloc.start()
    assert read_npz(tmp_path / "small.npz")[1].tolist() == [0, 0]
    with pytest.raises(FileError, match="expected at most 10 MB"):
        read_npz(tmp_path / "large.npz", limit=10**7)
    assert tracemalloc.get_traced_memory()[1] < 1 << 23
    tracemalloc.stop()


def test_which_array(tmp_path):
    np.savez(tmp_path / "a.npz", one=np.zeros(1), two=np.ones(2), logits=np.ones(3))
    assert read_npz(tmp_path / "a.npz", "two")[1].tolist() == [1, 1]
    assert read_npz(tmp_path / "a.npz", prefer=("scores", "logits"))[0] == "logits"
    with pytest.raises(FileError, match=r"has 3 arrays \('one', 'two', 'logits'\); choose one"):
        read_npz(tmp_path / "a.npz")
    with pytest.raises(FileError, match="has no array 'three'; it has 'one', 'two', 'logits'"):
        read_npz(tmp_path / "a.npz", "three")


def test_an_archive_has_the_arrays_that_were_written_and_no_other():
    """numpy before 2.2 would add ``allow_pickle`` to them."""
    file = io.BytesIO()
    write_npz(file, labels=np.arange(6).reshape(2, 3), names=np.ones(2))
    with np.load(io.BytesIO(file.getvalue()), allow_pickle=False) as archive:
        assert archive.files == ["labels", "names"]
        assert archive["labels"].tolist() == [[0, 1, 2], [3, 4, 5]]


@hypothesis.given(st.data())
def test_a_damaged_archive_is_answered_with_a_sentence(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "a.npz"
    np.savez_compressed(path, a=np.arange(200.0), b=np.arange(5))
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 5))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        _, values = read_npz(path, "a", limit=10**6)
    except FileError:
        return
    assert values.nbytes <= 10**6
