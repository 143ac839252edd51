"""``fwcrf pseudo-labels``: the labels of ``fwcrf.pseudo_labels``, for folders, resumed like a batch."""

import json

import numpy as np
import pytest
from scenes import scene, write_scenes

import fwcrf
from fwcrf.apps.batch.local import attempt
from fwcrf.apps.files import read_labels
from fwcrf.apps.files.images import read_image


@pytest.fixture
def folder(tmp_path, monkeypatch, num_threads):
    """Images, and maps of labels 1 and 2; of the second image in a .npz file with its class."""

    def engine(job, items, *, num_workers, prepare):
        return ((i, attempt(job, item)) for i, item in enumerate(items))

    monkeypatch.setattr("fwcrf.apps.batch.run.run_locally", engine)
    write_scenes(tmp_path, 3)
    (tmp_path / "maps").mkdir()
    for index in range(3):
        maps = scene(index)[1][..., 1:]
        if index == 1:
            np.savez(tmp_path / "maps/1.npz", maps=maps[..., :1], classes=np.array([7]))
        else:
            np.save(tmp_path / f"maps/{index}.npy", maps)
    return tmp_path


def run(fwcrf_command, folder, *more):
    given = (folder / "images", "--maps", folder / "maps", "-o", folder / "out", "-j", 1)
    return fwcrf_command("pseudo-labels", *given, *more)


def test_a_folder_is_labelled_once(folder, fwcrf_command):
    assert run(fwcrf_command, folder, "--overlay")[0] == 0
    for index, classes in ((0, None), (1, [7]), (2, None)):
        image, maps = read_image(folder / f"images/{index}.png").values, scene(index)[1][..., 1:]
        expected = fwcrf.pseudo_labels(image, maps[..., :1] if classes else maps, classes)
        assert np.array_equal(read_labels(folder / f"out/{index}.png"), expected)
        assert (folder / f"out/{index}-overlay.png").exists()
    again = run(fwcrf_command, folder, "--overlay")
    assert again == (0, "", "0 refined, 3 done before, 0 failed\n")
    err = run(fwcrf_command, folder, "--power", "16,4", "--unsure", 21)[2]
    assert "3 outputs of other settings or inputs are made again" in err
    expected = fwcrf.pseudo_labels(
        read_image(folder / "images/0.png").values, scene(0)[1][..., 1:], power=(16, 4), ignore=21
    )
    assert np.array_equal(read_labels(folder / "out/0.png"), expected)


def test_classes_from_a_file_count_and_their_change_is_noticed(folder, fwcrf_command):
    listed = folder / "classes.json"
    listed.write_text(json.dumps({"0": [2], "1": [3], "2": []}))
    assert run(fwcrf_command, folder, "--classes", listed)[0] == 0
    found = [{*np.unique(read_labels(folder / f"out/{i}.png")).tolist()} - {0, 255} for i in range(3)]
    assert found == [{2}, {3}, set()]
    listed.write_text(json.dumps({"0": [2], "1": [4]}))
    status, _, err = run(fwcrf_command, folder, "--classes", listed)
    assert status == 1 and "the list of classes has no '2'" in err and "1 refined, 1 done before" in err
    assert 4 in read_labels(folder / "out/1.png")


@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        (("--threshold", "0.1", "--power", "4"), 2, "a threshold and a power"),
        (("--threshold", "a"), 2, "expected a number, or two with a comma"),
        (("--align", "middle"), 2, "expected corners, centers"),
        (("--threshold", "0.3,0.1"), 1, "the smaller threshold first"),
        (("--classes", "images"), 1, "images cannot be read"),
        (("--key", "cam"), 1, "has no array 'cam'"),
    ],
)
def test_mistakes_are_named(folder, fwcrf_command, monkeypatch, more, status, said):
    monkeypatch.chdir(folder)
    found, _, err = run(fwcrf_command, folder, *more)
    assert found == status and said in " ".join(err.split())


def test_maps_with_their_axis_first_need_a_flag(folder, fwcrf_command):
    for index in (0, 2):
        path = folder / f"maps/{index}.npy"
        np.save(path, np.moveaxis(np.load(path), -1, 0))
    (folder / "maps/1.npz").unlink()
    (folder / "images/1.png").unlink()
    status, _, err = run(fwcrf_command, folder)
    assert status == 1 and "pass --map-axis 0. If it is not, pass --classes" in " ".join(err.split())
    assert run(fwcrf_command, folder, "--map-axis", 0)[0] == 0
    expected = fwcrf.pseudo_labels(read_image(folder / "images/0.png").values, scene(0)[1][..., 1:])
    assert np.array_equal(read_labels(folder / "out/0.png"), expected)
