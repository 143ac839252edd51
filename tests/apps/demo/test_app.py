"""The server's answers: what is bounded, who is refused, who sees what."""

import base64
import io
import json
import pickle
import runpy
import tempfile
import zipfile
from pathlib import Path

import httpx
import numpy as np
import pytest
from demo_pages import FROM_HERE, STROKES, npy, png, served, two_halves
from PIL import Image
from starlette.datastructures import Headers

import fwcrf
from fwcrf import examples
from fwcrf.apps.demo import app as demo_app
from fwcrf.apps.demo.guard import HEADERS
from fwcrf.apps.demo.pictures import bundled
from fwcrf.apps.demo.presets import SOLVERS
from fwcrf.apps.demo.request import BOUNDS, LABELS
from fwcrf.apps.demo.sessions import Sessions


@pytest.fixture(scope="module")
def address():
    with served() as address:
        yield address


@pytest.fixture
def client(address):
    with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        yield client


class Visitor:
    """One page: its requests carry its session."""

    def __init__(self, client):
        self.client = client
        self.session = client.post("/api/session", headers=FROM_HERE).json()["session"]

    def __call__(self, method, path, **options):
        return self.client.request(method, path, headers={"X-Session": self.session}, **options)

    def send_picture(self, image=None, name="own.png"):
        content = png(two_halves() if image is None else image)
        answer = self("POST", "/api/picture", params={"name": name}, content=content)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def solve(self, **settings):
        answer = self("POST", "/api/solve", json={"strokes": STROKES, **settings})
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    def mask(self):
        answer = self("GET", "/api/mask")
        assert answer.status_code == 200, answer.text
        return np.asarray(Image.open(io.BytesIO(answer.content)))


@pytest.fixture
def visitor(client):
    return Visitor(client)


def unpacked(text, shape):
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(shape)


# --- what it does ---------------------------------------------------------------------------------


def test_scribbles_give_labels_and_the_energies_of_three_solvers(visitor):
    assert visitor.send_picture() == {"width": 36, "height": 24, "strokes": [], "names": []}
    first, *energies, last = visitor.solve(num_steps=4, compare=["efw", "fw"])
    labels = unpacked(first["labels"], (24, 36))
    assert (labels[:, :17] == 0).mean() > 0.95 and (labels[:, 19:] == 1).mean() > 0.95
    assert last == {"event": "end"}
    path = {name: [e["energy"] for e in energies if e["solver"] == name] for name in ("l2fw", "efw", "fw")}
    assert all(len(values) == 5 for values in path.values()) and len(energies) == 15
    assert len({values[0] for values in path.values()}) == 1
    assert path["l2fw"][-1] <= path["l2fw"][0]
    assert np.array_equal(visitor.mask(), labels)
    with Image.open(io.BytesIO(visitor("GET", "/api/mask").content)) as image:
        assert image.mode == "P"


def test_scribbles_are_certain(visitor):
    visitor.send_picture()
    dot = {"label": 1, "radius": 1, "points": [[5, 12]]}
    first, *_ = visitor.solve(strokes=[*STROKES, dot], bilateral={"xy": 80, "color": 13, "weight": 20})
    labels = unpacked(first["labels"], (24, 36))
    assert labels[12, 5] == 1 and labels[12, 9] == 0


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_can_be_chosen(visitor, solver):
    visitor.send_picture()
    assert visitor.solve(solver=solver, num_steps=2, compare=[])[-1] == {"event": "end"}
    assert f"get('{solver}'" in visitor("GET", "/api/snippet").text


def test_every_bundled_picture_has_strokes_that_work(client):
    begun = client.post("/api/session", headers=FROM_HERE).json()
    visitor = Visitor(client)
    for name in [picture["name"] for picture in begun["pictures"]]:
        assert client.get(f"/thumbnails/{name}").headers["content-type"] == "image/jpeg"
        found = visitor("POST", "/api/picture", params={"bundled": name}).json()
        assert max(found["width"], found["height"]) <= 500
        labels = 1 + max(stroke["label"] for stroke in found["strokes"])
        answer = visitor.solve(strokes=found["strokes"], num_labels=labels, num_steps=1, compare=[])
        drawn = unpacked(answer[0]["labels"], (found["height"], found["width"]))
        assert {*np.unique(drawn)} == {*range(labels)}
    shown = np.asarray(Image.open(io.BytesIO(visitor("GET", "/api/picture").content)))
    assert shown.shape == (found["height"], found["width"], 3)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"solver": "efw", "weight": 0.37, "num_steps": 3, "spatial": {"xy": 3, "weight": 0}, "trust": 0.6},
        {"solver": "anneal-fw", "bilateral": {"xy": 40, "color": 20, "weight": 0}},
    ],
)
def test_the_program_makes_the_same_mask_of_a_bundled_picture(visitor, settings, tmp_path, monkeypatch):
    strokes = visitor("POST", "/api/picture", params={"bundled": "rocket"}).json()["strokes"]
    visitor.solve(strokes=strokes, compare=[], **settings)
    assert_reproduced(visitor, tmp_path, monkeypatch)


@pytest.mark.parametrize("strokes", [[], [{"label": 4, "radius": 4, "points": [[252, 130], [250, 300]]}]])
def test_the_program_makes_the_same_mask_of_a_networks_scores(visitor, strokes, tmp_path, monkeypatch):
    names = visitor("POST", "/api/picture", params={"bundled": "rocket"}).json()["names"]
    assert len(names) == 21 and names[4] == "boat"
    first, *_ = visitor.solve(scores="network", strokes=strokes, num_labels=21, compare=[])
    logits = examples.load("rocket").logits
    assert first["num_labels"] == logits.shape[-1]
    alone = unpacked(first["scores"], visitor.mask().shape)
    assert 0.02 < (alone == 4).mean() < 0.2  # the share of the example's own labels is 0.10
    assert (alone != visitor.mask()).mean() > 0.01
    if not strokes:
        refined = fwcrf.refine(bundled("rocket"), logits, from_logits=True, resize="scores")
        assert np.array_equal(visitor.mask(), refined)
    assert_reproduced(visitor, tmp_path, monkeypatch)


def test_a_network_has_no_scores_for_own_pictures(visitor):
    visitor("POST", "/api/picture", params={"bundled": "rocket"})
    visitor.send_picture()
    answer = visitor("POST", "/api/solve", json={"scores": "network"})
    assert answer.status_code == 400 and "examples only" in answer.json()["error"]


PROBABILITIES = np.random.default_rng(3).dirichlet(np.ones(3), (24, 36))


@pytest.mark.parametrize(
    ("name", "content", "kind", "expected"),
    [
        ("p.npy", npy(PROBABILITIES), "", "probabilities"),
        ("p.npy", npy(np.log(PROBABILITIES).transpose(2, 0, 1)), "logits", "logits"),
        ("small.npy", npy(PROBABILITIES[::2, ::2].astype(np.float32)), "", "probabilities"),
        ("map.png", png((np.arange(24 * 36).reshape(24, 36) % 5).astype(np.uint8)), "", "labels"),
        ("mask.png", png(np.eye(24, 36, dtype=np.uint8) * 255), "mask", "mask"),
        ("it's \"odd\".npy", npy(PROBABILITIES), "", "probabilities"),
    ],
)  # fmt: skip
def test_the_program_makes_the_same_mask_from_files(
    visitor, tmp_path, monkeypatch, name, content, kind, expected
):
    image = two_halves()
    visitor.send_picture(image, "my 'own'\nphoto.png")
    found = visitor("POST", "/api/scores", params={"name": f"folder/{name}", "kind": kind}, content=content)
    assert found.json()["kind"] == expected, found.text
    labels = found.json()["num_labels"]
    visitor.solve(scores="file", num_labels=labels, compare=[], strokes=STROKES)
    (tmp_path / "my 'own'photo.png").write_bytes(png(image))
    (tmp_path / name).write_bytes(content)
    assert_reproduced(visitor, tmp_path, monkeypatch)


@pytest.mark.parametrize("align", ["corners", "6,0", "5x6,2x0"])
def test_scores_lie_on_the_picture_as_the_request_says(visitor, tmp_path, monkeypatch, align):
    image, small = two_halves(), PROBABILITIES[2::5, ::6].astype(np.float32)
    visitor.send_picture(image, "own.png")
    options = {"params": {"name": "small.npy", "align": align}, "content": npy(small)}
    assert visitor("POST", "/api/scores", **options).status_code == 200
    visitor.solve(scores="file", num_labels=3, compare=[], strokes=STROKES)
    (tmp_path / "own.png").write_bytes(png(image))
    (tmp_path / "small.npy").write_bytes(npy(small))
    assert_reproduced(visitor, tmp_path, monkeypatch)
    assert "align=" in visitor("GET", "/api/snippet").text


def test_labels_on_another_axis_are_refused(visitor):
    visitor.send_picture()
    few = np.random.default_rng(0).normal(size=(12, 4, 6)).astype(np.float32)  # 12 labels, for 24 x 36 pixels
    options = {"params": {"name": "p.npy", "kind": "logits"}, "content": npy(few)}
    answer = visitor("POST", "/api/scores", **options)
    assert answer.status_code == 400 and "seem to be at axis 0" in answer.json()["error"]


@pytest.mark.parametrize(
    ("align", "said"), [("middle", "align='middle'; expected corners"), ("9,0", "stride 9 and offset 0")]
)
def test_a_bad_alignment_is_refused(visitor, align, said):
    visitor.send_picture()
    options = {"params": {"name": "p.npy", "align": align}, "content": npy(PROBABILITIES)}
    answer = visitor("POST", "/api/scores", **options)
    assert answer.status_code == 400 and said in answer.json()["error"]


def assert_reproduced(visitor, folder, monkeypatch):
    monkeypatch.chdir(folder)
    Path("program.py").write_text(visitor("GET", "/api/snippet").text)
    runpy.run_path("program.py")
    assert Path("mask.png").read_bytes() == visitor("GET", "/api/mask").content
    assert len(np.unique(visitor.mask())) > 1


def test_pictures_are_turned_upright_and_made_smaller(visitor):
    exif = Image.Exif()
    exif[0x0112] = 6
    content = png(np.zeros((300, 1000, 3), np.uint8), "JPEG", exif=exif)
    found = visitor("POST", "/api/picture", params={"name": "a.jpg"}, content=content).json()
    assert (found["width"], found["height"]) == (150, 500)


# --- apart from each other --------------------------------------------------------------------------


def test_visitors_do_not_see_each_other(client):
    one, other = Visitor(client), Visitor(client)
    assert one.session != other.session and len(one.session) >= 32
    one.send_picture(two_halves(seed=1))
    assert other("GET", "/api/picture").status_code == 404
    other.send_picture(two_halves(30, 40))
    one.solve(compare=[])
    assert other("GET", "/api/mask").status_code == 404
    assert other("GET", "/api/snippet").status_code == 404
    assert one.mask().shape == (24, 36)
    assert client.get("/api/picture").status_code == 410
    assert client.get("/api/picture", headers={"X-Session": "x" * 32}).status_code == 410


def test_a_new_picture_leaves_nothing_of_the_old(visitor):
    visitor.send_picture()
    visitor("POST", "/api/scores", params={"name": "p.npy"}, content=npy(PROBABILITIES))
    visitor.solve(compare=[])
    visitor.send_picture()
    assert visitor("GET", "/api/mask").status_code == 404
    answer = visitor("POST", "/api/solve", json={"scores": "file"})
    assert answer.status_code == 400 and "no scores yet" in answer.json()["error"]


def test_the_latest_question_alone_is_answered(visitor):
    visitor.send_picture()
    with visitor.client.stream(
        "POST",
        "/api/solve",
        headers={"X-Session": visitor.session},
        json={"strokes": STROKES, "num_steps": 50},
    ) as slow:
        lines = slow.iter_lines()
        assert json.loads(next(lines))["event"] == "labels"
        visitor.solve(num_steps=1, compare=[])
        rest = [json.loads(line)["event"] for line in lines]
    assert rest[-1] in ("stale", "end")
    assert visitor.mask().shape == (24, 36)
    assert "num_steps=1," in visitor("GET", "/api/snippet").text


def test_sessions_are_bounded_in_number_age_and_memory():
    now = [0.0]
    sessions = Sessions(most=3, most_bytes=1000, longest_rest=10, clock=lambda: now[0])
    names = [sessions.begin() for _ in range(5)]
    assert [sessions.get(name) is not None for name in names] == [False, False, True, True, True]
    now[0] = 8
    kept = sessions.get(names[3])
    now[0] = 15
    assert [sessions.get(name) is not None for name in names[2:]] == [False, True, False]
    kept.kept["scores"] = (0, np.zeros(900, np.uint8))
    last = sessions.begin()
    sessions.get(last).kept["scores"] = (0, np.zeros(200, np.uint8))
    assert sessions.get(last) is not None and len(sessions) == 1
    turn = kept.turn
    assert turn > 0  # what was being computed for it is given up


def test_a_visitor_replaces_their_own_sessions_alone():
    sessions = Sessions(most=8, most_of_one=6, most_bytes=1000)
    theirs = [sessions.begin(visitor) for visitor in ("a", "b", "b")]
    mine = [sessions.begin("c") for _ in range(33)]
    assert all(sessions.get(name) for name in theirs)
    assert [name for name in mine if sessions.get(name)] == mine[-5:]
    more = [sessions.begin(visitor) for visitor in "def"]
    assert all(sessions.get(name) for name in theirs + more)
    assert [name for name in mine if sessions.get(name)] == mine[-2:]
    alone = Sessions(most=8, most_of_one=6)
    assert len([alone.begin("a") for _ in range(9)]) == 9 and len(alone) == 6
    for name, size in ((theirs[0], 300), (mine[-1], 400), (mine[-2], 400)):
        sessions.get(name).kept["scores"] = (0, np.zeros(size, np.uint8))
    assert sessions.get(theirs[0]) and not sessions.get(mine[-1]) and sessions.get(mine[-2])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("unknown", "10.0.0.1", False),
    ],
)
def test_visitors_by_address(one, other, same):
    found = [
        demo_app._visitor(demo_app.Request({"type": "http", "client": (host, 1), "headers": []}))
        for host in (one, other)
    ]
    assert (found[0] == found[1]) == same


def test_sessions_of_one_address(client):
    first = Visitor(client)
    for _ in range(demo_app.Sessions()._most_of_one):
        last = Visitor(client)
    assert first("GET", "/api/picture").status_code == 410
    assert last("GET", "/api/picture").status_code == 404


# --- from elsewhere ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/api/picture", "/nowhere", "/thumbnails/coffee"])
def test_every_answer_has_the_headers(client, path):
    answer = client.get(path)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example:80"}, 421),
        ({"Host": "192.168.0.7"}, 421),
        ({"Host": ""}, 421),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"X-Fwcrf": "0"}, 403),
    ],
)
def test_other_pages_are_refused(client, headers, status):
    assert client.post("/api/session", headers={**FROM_HERE, **headers}).status_code == status


def test_its_own_page_is_not(client, address):
    assert client.post("/api/session", headers={**FROM_HERE, "Origin": address}).status_code == 200


def test_on_another_interface_names_are_still_refused():
    with served("0.0.0.0") as address, httpx.Client(base_url=address, trust_env=False) as client:
        assert client.get("/", headers={"Host": "192.168.0.7:8420"}).status_code == 200
        assert client.get("/", headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("studio", "studio"),
        ("studio", "STUDIO:8420"),
        ("Studio.Local", "studio.local."),
        ("studio.", "studio"),
        ("bücher.example", "xn--bcher-kva.example:80"),
        ("a_b", "a_b"),
        ("10.0.0.7", "10.0.0.7:1"),
        ("::", "[::1]:2"),
    ],
)
def test_the_name_given_is_accepted(given, sent):
    guard = demo_app.create_app(given)
    assert guard.refusal(Headers({"host": sent}), "http") is None
    assert guard.refusal(Headers({"host": "evil.example"}), "http").status_code == 421


# --- hostile ----------------------------------------------------------------------------------------


def wide_png(width, height):
    """A small file that says it is a large picture."""
    content = bytearray(png(np.zeros((1, 1, 3), np.uint8)))
    content[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    import zlib

    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    return bytes(content)


def bomb():
    """A .npz with a header of one size and data of another, well compressed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        head = npy(np.zeros((1, 1, 2), np.float32))[:128].replace(b"(1, 1, 2)", b"(9999, 9999, 2)"[:15])
        archive.writestr("probabilities.npy", head + bytes(10_000_000))
    return file.getvalue()


class Evil:
    def __reduce__(self):
        return Path.touch, (Path("pwned"),)


def pickled():
    file = io.BytesIO()
    np.save(file, np.array([Evil()], dtype=object), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"GIF89a", b"<svg/>", b"\x89PNG\r\n\x1a\n" + b"x" * 100, png(two_halves())[:200],
        wide_png(60_000, 60_000), wide_png(1 << 31, 4), npy(PROBABILITIES),
    ],
)  # fmt: skip
def test_bad_pictures_are_refused_with_a_sentence(visitor, content):
    answer = visitor("POST", "/api/picture", params={"name": "../../etc/x.png"}, content=content)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("x.png ")
    assert tempfile.gettempdir() not in answer.text


@pytest.mark.parametrize(
    "content",
    [
        b"", b"junk", bomb(), pickled(), pickle.dumps([1]), npy(np.zeros((4, 4, 22), np.float32)),
        npy(np.full((24, 36, 2), np.nan)), npy(np.zeros((24, 36, 2))), npy(np.zeros(5)),
        npy(np.zeros((0, 36, 2))), npy(np.full((24, 36), 200)), npy(np.zeros((2, 2, 2, 2))),
    ],
    # An archive has the time in it, and names that differ between two processes would end a parallel run.
    ids=range(12),
)  # fmt: skip
def test_bad_scores_are_refused_with_a_sentence(visitor, content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    visitor.send_picture()
    answer = visitor("POST", "/api/scores", params={"name": "s.npy"}, content=content)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]
    assert not (tmp_path / "pwned").exists()


def test_what_is_sent_is_bounded(visitor, monkeypatch):
    monkeypatch.setattr(demo_app, "MOST_PICTURE", 1000)
    assert visitor("POST", "/api/picture", content=bytes(1001)).status_code == 413

    def without_a_length():
        for _ in range(11):
            yield bytes(100)

    assert visitor("POST", "/api/picture", content=without_a_length()).status_code == 413
    monkeypatch.setattr(demo_app, "MOST_JSON", 100)
    assert visitor("POST", "/api/solve", json={"strokes": STROKES}).status_code == 413


def test_nothing_stays_on_the_disk(visitor, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    visitor.send_picture()
    visitor("POST", "/api/picture", content=b"junk")
    visitor("POST", "/api/scores", content=npy(PROBABILITIES))
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/thumbnails/..%2fx"]
)
def test_no_other_files_are_served(client, path):
    assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    "change",
    [
        {"solver": "rm -rf"}, {"solver": ["l2fw"]}, {"num_steps": 51}, {"num_steps": 0}, {"weight": "1"},
        {"weight": float("inf")}, {"trust": True}, {"num_labels": 1}, {"num_labels": 22}, {"num_labels": 2.5},
        {"compare": ["mf"] * 3}, {"compare": 3}, {"scores": "net"},
        {"preset": "none"}, {"preset": ["default"]}, {"compare": [["mf"]]},
        {"colour": 1}, {"bilateral": {"xy": 80}},
        {"bilateral": {"xy": 1, "color": 13, "weight": 1}}, {"spatial": [3, 1]}, {"strokes": "all"},
        {"spatial": {"xy": 3, "weight": 0}, "bilateral": {"xy": 80, "color": 13, "weight": 0}},
        {"strokes": [{"label": 2, "radius": 1, "points": [[1, 1]]}]},
        {"strokes": [{"label": 0, "radius": 1e9, "points": [[1, 1]]}]},
        {"strokes": [{"label": 0, "radius": 1, "points": []}]},
        {"strokes": [{"label": 0, "radius": 1, "points": [[1, None]]}]},
        {"strokes": [{"label": 0, "radius": 1, "points": [[1, 2, 3]]}]},
        {"strokes": [{"label": 0, "radius": 1, "points": [[0, 0]] * 20_000}]},
        {"strokes": [{"label": 0, "radius": 60, "points": [[0, 0], [500, 500]] * 1000}]},
        {"strokes": [{"label": 0, "radius": 1, "points": [[1, 1]]}] * 600},
        {"strokes": STROKES[:1]}, {"strokes": []},
    ],
)  # fmt: skip
def test_bad_questions_are_refused_with_a_sentence(visitor, change):
    visitor.send_picture()
    content = json.dumps({"strokes": STROKES, **change})
    answer = visitor("POST", "/api/solve", content=content)
    assert answer.status_code == 400
    assert answer.json()["error"].endswith(".")


@pytest.mark.parametrize("content", [b"", b"[", b"[]", b"3", b"[" * 100_000, b"\xff"])
def test_what_is_not_json_is_refused(visitor, content):
    visitor.send_picture()
    assert visitor("POST", "/api/solve", content=content).status_code == 400


# --- the page and the server agree ------------------------------------------------------------------


def test_the_page_asks_only_for_what_is_allowed(client):
    import re

    page = client.get("/").text
    sliders = {m[1]: m[0] for m in re.findall(r'(<input type="range" id="([^"]+)"[^>]*>)', page)}
    for name, (low, high) in BOUNDS.items():
        tag = sliders[name.replace(".", "-")]
        ends = [float(re.search(rf'{end}="([^"]+)"', tag)[1]) for end in ("min", "max")]
        if 'data-scale="log"' in tag:
            ends = [10**end for end in ends]
        assert low <= ends[0] < ends[1] <= high, name
        assert "value=" not in tag, name  # the server has the starting values
    colours = re.findall(r"\[\d+, \d+, \d+\]", client.get("/static/palette.js").text)
    assert len({*colours}) == LABELS[1]
    assert "http://" not in page and "https://" not in page
