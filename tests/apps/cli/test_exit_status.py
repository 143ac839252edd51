"""The exit status of every command: 0, 1 for a failure, 2 for bad usage; the message has no traceback."""

import sys
from types import SimpleNamespace

import layouts
import pytest
from scenes import write_scenes

from fwcrf.apps.batch.local import attempt

CONFIG = """
data: {name: splits, root: ROOT, crop: [25, 25]}
model: {name: mobilenetv2, settings: {depth: 0.125}}
crf: {num_steps: 1}
optimizer: {crf_lr: 10.0}
epochs: 1
batch_size: 4
run: {workers: 0}
"""
REFINE = "refine scenes/images/0.png -s scenes/scores/0.npy"
BATCH = "batch scenes/images -s scenes/scores -j 1"
TUNE = "tune scenes/images -s scenes/scores -t scenes/truth -j 1 --trials 1 --images 1"
FIT = "fit scenes/images -s scenes/scores -t scenes/truth -j 1 --updates 1 --folds 2 --crop 8 --learn weights"
# Status and arguments.
TABLE = f"""
0  --help
0  --version
2
2  nope
2  --nope
0  refine --help
0  {REFINE} -o a.png
0  {REFINE} -o a.png --overlay --probabilities p.npz
0  {REFINE} -o /dev/null
0  {REFINE} -o /dev/null --probabilities /dev/null
0  {REFINE} -o a.png --probabilities /dev/null
1  {REFINE} -o /dev/full
2  {REFINE} -o scenes
1  {REFINE} -o nowhere/a.png
1  {REFINE} -o a.png --config nowhere.yaml
1  {REFINE} -o a.png --limit 1kB
1  {REFINE} -o a.png --label-axis 7
1  refine nowhere.png -s scenes/scores/0.npy -o a.png
2  refine
2  {REFINE}
2  {REFINE} -o a.jpg
2  {REFINE} -o /dev/null --overlay
2  {REFINE} -o a.png --solver nope
2  {REFINE} -o a.png --solver mf --lambda 1
2  {REFINE} -o a.png --lambda nan
2  {REFINE} -o a.png --steps many
2  {REFINE} -o a.png --bilateral 1 2
2  {REFINE} -o a.png --bilateral -1 2 3
2  {REFINE} -o a.png --compatibility inf
2  {REFINE} -o a.png --rounding up
2  {REFINE} -o a.png --confidence 3
2  {REFINE} -o a.png --labels 1
2  {REFINE} -o a.png --limit 1.2.3
2  {REFINE} -o a.png --limit {"9" * 400}
2  {REFINE} -o a.png --probabilities p.png
2  {REFINE} -o a.png --nope
0  batch --help
0  {BATCH} -o out
1  {BATCH} -o list.csv
1  batch list.csv -o out -j 1
1  batch nowhere.csv -o out
1  batch scenes -s scenes/scores -o out
2  batch
2  {BATCH}
2  {BATCH} -o out --ending .jpg
2  {BATCH} -o out --ending txt
2  {BATCH} -o out --workers 0
2  {BATCH} -o out --engine magic
2  {BATCH} -o out --address a:1
2  {BATCH} -o out --solver nope
2  batch list.csv -s scenes/scores -o out
2  batch scenes/images -o out
0  pseudo-labels scenes/images -m scenes/scores -o out -j 1
1  pseudo-labels nowhere.csv -o out
2  pseudo-labels scenes/images -o out
0  tune --help
0  {TUNE} -o best.yaml
0  {TUNE} -o /dev/null --plot /dev/null
1  {TUNE} -o nowhere/best.yaml
1  tune scenes/images -s scenes/scores -t nowhere -o best.yaml
2  tune
2  {TUNE} -o best.txt
2  {TUNE} -o best.yaml --only mu
2  {TUNE} -o best.yaml --plot a.jpg
2  {TUNE} -o best.yaml --trials 0
2  {TUNE} -o best.yaml --solver nope
2  tune scenes/images -o best.yaml
2  tune list.csv -s scenes/scores -o best.yaml
0  fit --help
0  {FIT} -o best.yaml
1  {FIT} -o nowhere/best.yaml
1  fit scenes/images -s scenes/scores -t nowhere -o best.yaml
2  fit
2  {FIT} -o best.txt
2  {FIT} -o best.yaml --learn mu
2  {FIT} -o best.yaml --updates 0
2  {FIT} -o best.yaml --solver nope
2  fit scenes/images -o best.yaml
0  map --help
0  map a.uai
0  map a.uai -o a.MAP --solver efw --lambda 0.5
0  map a.uai -o /dev/null --solver lp-trw
1  map nowhere.uai
1  map list.csv
1  map a.uai -o /dev/full
1  map a.uai -o nowhere/a.MAP
1  map a.uai -e nowhere.evid
2  map
2  map a.uai --solver nope
2  map a.uai --solver mf --lambda 1
2  map a.uai --lambda nan
2  map a.uai --steps -1
2  map a.uai --rounding up
2  map a.uai --restarts 1 --rounding nearest
0  bench --help
0  bench stub
2  bench nope
2  bench --rounds 0
1  bench speed --compare nowhere.json
1  bench --device nowhere
0  train --help
0  train config.yaml -o run
1  train nowhere.yaml -o run
1  train list.csv -o run
1  train config.yaml -o run --set data.root=nowhere
2  train
2  train config.yaml
2  train config.yaml -o run --set epochs
2  train config.yaml -o run --set crf.solvr=mf
2  train config.yaml -o run --set epochs=0
2  train config.yaml -o run --set epochs=[
0  eval --help
1  eval nowhere -o scores
1  eval config.yaml -o scores --labels nowhere
2  eval
2  eval config.yaml -o scores --subset cars
2  eval config.yaml -o scores --subset a=boat
2  eval config.yaml -o scores --set crf=null --steps 3
2  eval config.yaml -o scores --steps -1
0  experiment --help
1  experiment energy -o out --data nowhere
2  experiment
2  experiment nope -o out
2  experiment energy -o out
2  experiment energy -o out --images 1
0  demo --help
0  demo --no-browser --port 0
1  demo --no-browser --host name.invalid
2  demo --port 99999
2  demo --nope
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("place")
    write_scenes(place / "scenes", 2)
    root = layouts.splits(place / "data", size=(18, 24))
    (place / "config.yaml").write_text(CONFIG.replace("ROOT", str(root)))
    (place / "list.csv").write_text("image,scores\nnowhere.png,nowhere.npy\n")
    (place / "a.uai").write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3 4\n")
    return place


@pytest.fixture(autouse=True)
def in_process(monkeypatch, num_threads):
    """Jobs without processes, a server that ends at once, and one benchmark."""

    def engine(job, items, **_):
        return ((i, attempt(job, item)) for i, item in enumerate(items))

    monkeypatch.setattr("fwcrf.apps.batch.run.run_locally", engine)
    monkeypatch.setattr("fwcrf.apps.batch.local.Pool.run", lambda self, items: engine(self.job, items))
    monkeypatch.setattr("fwcrf.apps.demo.solve.warm_up", lambda: None)
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: [sock.close() for sock in sockets])
    monkeypatch.delenv("FWCRF_DATA", raising=False)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=pytest.mark.linux if "/dev/" in " ".join(row) else (), id=" ".join(row)[:80])
        for row in ROWS
    ],
)
def test_status(place, fwcrf_command, monkeypatch, row):
    expected, *arguments = row
    monkeypatch.chdir(place)
    if arguments[:2] == ["bench", "stub"]:
        monkeypatch.setitem(
            sys.modules, "fwcrf.apps.bench.__main__", SimpleNamespace(main=lambda arguments: None)
        )
    status, out, err = fwcrf_command(*arguments)
    assert status == int(expected), err
    assert "Traceback" not in err
    if status:
        assert not out
        assert err


@pytest.mark.linux  # as rows of the table are
def test_every_command_is_in_the_table():
    from fwcrf.apps.cli.app import app

    commands = {command.name for command in app.registered_commands}
    found = {(row[1], row[0]) for row in ROWS if len(row) > 1}
    for name in commands:
        assert {"0", "1", "2"} == {status for command, status in found if command == name}, name
