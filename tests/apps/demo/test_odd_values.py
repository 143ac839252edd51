"""Odd values in requests: an answer with a sentence and the security headers, and never status 500."""

import itertools
import json

import httpx
import pytest
from demo_pages import FROM_HERE, STROKES, png, served, two_halves

from fwcrf.apps.demo import app as demo_app
from fwcrf.apps.demo.guard import HEADERS
from fwcrf.apps.demo.request import Request

# JSON texts, because json.dumps cannot write all of these.
ODD = [
    "1" + "0" * 400,
    "-1" + "0" * 400,
    "1" * 5000,
    "1e999",
    "-1e999",
    "1e-999",
    "NaN",
    "Infinity",
    "-Infinity",
    "-0",
    "null",
    "true",
    '""',
    '"1"',
    '"\\u0000"',
    '"\\ud800"',
    '"' + "x" * 5000 + '"',
    "[]",
    "{}",
    "[[]]",
    "[1]",
    "[null, null]",
    "[" * 100_000,
    "[" * 500 + "]" * 500,
    '{"a": ' * 500 + "1" + "}" * 500,
    '{"a": 1, "a": 2}',
    "0x10",
    "01",
    "1_0",
    "9007199254740993",
    "1.7976931348623157e308",
    "5e-324",
]
PLACES = [
    '{"strokes": [{"label": 0, "radius": 1, "points": [[%s, 1]]}]}',
    '{"strokes": [{"label": 0, "radius": 1, "points": [[1, %s]]}]}',
    '{"strokes": [{"label": 0, "radius": 1, "points": [%s]}]}',
    '{"strokes": [{"label": 0, "radius": 1, "points": %s}]}',
    '{"strokes": [{"label": 0, "radius": %s, "points": [[1, 1]]}]}',
    '{"strokes": [{"label": %s, "radius": 1, "points": [[1, 1]]}]}',
    '{"strokes": [%s]}',
    '{"strokes": %s}',
    '{"compare": [%s]}',
    '{"bilateral": {"xy": %s, "color": 13, "weight": 1}}',
    '{"spatial": %s}',
    '{"solver": "l2fw", "solver": %s}',
    "%s",
    *(f'{{"{name}": %s}}' for name in Request.__dataclass_fields__),
    "{%s: 1}",
]


@pytest.fixture(scope="module")
def client():
    with served() as address, httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        begun = client.post("/api/session", headers=FROM_HERE)
        client.headers["X-Session"] = begun.json()["session"]
        answer = client.post("/api/picture", params={"name": "a.png"}, content=png(two_halves()))
        assert answer.status_code == 200
        yield client


def check(answer):
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert answer.status_code < 500


@pytest.mark.parametrize("place", PLACES)
def test_every_value_in_every_place(place):
    """Without a server, for the sake of time: accepted, or refused with a sentence."""
    accepted = 0
    for odd in ODD:
        try:
            Request.of(demo_app._json((place % odd).encode()))
            accepted += 1
        except (ValueError, demo_app.Refused) as error:
            assert str(error).endswith("."), odd[:50]
            assert len(str(error)) < 2000
    assert accepted < len(ODD) / 2


@pytest.mark.parametrize("odd", ["1" + "0" * 400, "NaN", "[" * 100_000, '"\\ud800"', '{"a": 1, "a": 2}'])
def test_some_values_through_the_server(client, odd):
    for place in (PLACES[0], PLACES[4], '{"weight": %s}'):
        answer = client.post("/api/solve", content=(place % odd).encode())
        check(answer)
        assert answer.status_code == 400
        assert answer.json()["error"].endswith(".")


def test_odd_paths_and_names(client):
    odd = ["", "..", "%00", "a%00b", "%ff", "%F0%9F%98%80", "..%2f..%2fapp.py", "a" * 3000, "%0d%0aX: 1"]
    paths = ["/static/{}", "/thumbnails/{}", "/{}", "/api/picture?bundled={}", "/api/{}"]
    for path, value in itertools.product(paths, odd):
        check(client.get(path.format(value)))
        check(client.post(path.format(value)))
    for name in odd:
        check(client.post(f"/api/picture?name={name}", content=b"x"))
        check(client.post(f"/api/scores?name={name}&kind={name}", content=b"x"))
    for method in ("HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "ODD"):
        check(client.request(method, "/api/solve"))


def test_a_failure_of_the_server(client, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(demo_app, "snippet", fail)
    monkeypatch.setattr(demo_app, "_finished", lambda request: None)
    answer = client.get("/api/snippet")
    assert answer.status_code == 500
    assert answer.json()["error"].startswith("the server failed")
    assert "a bug" not in answer.text
    for name, value in HEADERS.items():
        assert answer.headers[name] == value


def test_strokes_are_as_before():
    request = Request.of({"strokes": STROKES})
    assert json.loads(json.dumps(request.strokes[0].points)) == [[3.0, 3.0], [3.0, 20.0]]
