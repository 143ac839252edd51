"""The page in a real browser: draw, slide, look, download. Skipped where there is none: ``make browser``."""

import base64
import io
import re
import runpy
import time
from pathlib import Path

import numpy as np
import pytest
from browsers import find_browser
from demo_pages import npy, png, served, two_halves
from PIL import Image

from fwcrf import solvers
from fwcrf.apps.demo import app as demo_app
from fwcrf.apps.demo import presets
from fwcrf.apps.demo.solve import warm_up
from fwcrf.kernels import Bilateral, Spatial

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra 'test'")

ARTEFACTS = Path(__file__).parents[3] / "test-artefacts"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def address():
    warm_up()  # as the program does
    with served() as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium found; `make browser` installs one, or set FWCRF_CHROMIUM to its path")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser, address):
    """A page that has begun; at the end nothing may have been asked elsewhere or complained of."""
    context = browser.new_context(viewport={"width": 1366, "height": 900}, accept_downloads=True)
    page = context.new_page()
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.set_default_timeout(60_000)
    page.goto(address)
    page.locator("#pictures [aria-pressed=true]").wait_for()
    yield page
    context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith((address, "blob:" + address))] == []


def answers(page):
    return int(page.evaluate("Number(document.body.dataset.answers ?? 0)"))


def wait_for_answer(page, before):
    page.wait_for_function(
        "n => Number(document.body.dataset.answers ?? 0) > n && !document.body.classList.contains('busy')",
        arg=before,
    )


def pixels(page, canvas):
    """What a canvas shows, ``(H, W, 3)``."""
    shown = page.evaluate("id => document.getElementById(id).toDataURL('image/png')", canvas)
    content = base64.b64decode(shown.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def choose(page, name):
    """A photograph, and the answer to its first request; not to that of the photograph shown before."""
    wait_for_answer(page, 0)
    before = answers(page)
    page.locator(f"#pictures [data-name={name}]").click()
    page.locator(f"#pictures [data-name={name}][aria-pressed=true]").wait_for()
    wait_for_answer(page, before)
    page.wait_for_function("() => !document.getElementById('get-mask').disabled")


def slide(page, name, keys):
    """By the keyboard, as a slider has to allow it."""
    before = answers(page)
    page.locator(f"#{name}").focus()
    for key in keys:
        page.keyboard.press(key)
    wait_for_answer(page, before)


def draw(page, points):
    """A stroke through points in per cent of the picture."""
    page.locator("#overlay").scroll_into_view_if_needed()
    box = page.locator("#overlay").bounding_box()
    width, height = page.evaluate("[overlay.width, overlay.height]")
    scale = min(box["width"] / width, box["height"] / height)
    left, top = box["x"] + (box["width"] - width * scale) / 2, box["y"] + (box["height"] - height * scale) / 2
    at = [(left + x * width * scale / 100, top + y * height * scale / 100) for x, y in points]
    page.mouse.move(*at[0])
    page.mouse.down()
    for one in at[1:]:
        page.mouse.move(*one, steps=6)
    page.mouse.up()


def test_sliders_change_the_labels_and_the_energies_are_drawn(page):
    wait_for_answer(page, 0)
    refined, alone = pixels(page, "refined"), pixels(page, "alone")
    assert (refined != alone).any()
    assert page.locator("#plot polyline").count() == 3
    points = page.locator("#plot polyline.s0").get_attribute("points").split()
    assert len(points) == 1 + presets.controls("default")["num_steps"]
    assert {"background", "boat"} <= {*page.locator("#labels").inner_text().split()}
    heights = [float(point.split(",")[1]) for point in points]
    assert heights[-1] > heights[0]  # downwards: the energy falls
    assert re.fullmatch(r"[\d.]+ ms", page.locator("#time").inner_text())
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / "demo.png", full_page=True)

    slide(page, "bilateral-weight", ["Home"])
    assert (pixels(page, "refined") != refined).any()
    assert (pixels(page, "alone") == alone).all()
    slide(page, "num_steps", ["ArrowLeft", "ArrowLeft"])
    assert len(page.locator("#plot polyline.s0").get_attribute("points").split()) == len(points) - 2
    assert page.locator("#num_steps").get_attribute("aria-valuetext") == str(len(points) - 3)
    before = answers(page)
    page.locator("#solver").select_option("mf")
    wait_for_answer(page, before)
    assert page.locator("#weight").is_disabled()


def test_drawing_on_an_own_picture_and_taking_the_result_along(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.png").write_bytes(png(two_halves(120, 160)))
    page.locator("#picture-file").set_input_files("own.png")
    page.locator("#message").get_by_text("two labels").wait_for()
    assert page.locator("#get-mask").is_disabled()
    draw(page, [(10, 20), (20, 80)])
    page.get_by_label("Label 1", exact=True).check()
    before = answers(page)
    draw(page, [(90, 20), (80, 80)])
    wait_for_answer(page, before)
    found = pixels(page, "refined")
    assert (found[60, 10] != found[60, 150]).any()
    halves = [found[:, :78].reshape(-1, 3), found[:, 82:].reshape(-1, 3)]
    assert [(half == half[0]).all(-1).mean() > 0.97 for half in halves] == [True, True]

    for button, name in (("get-mask", "drawn.png"), ("get-snippet", "program.py")):
        with page.expect_download() as download:
            page.locator(f"#{button}").click()
        download.value.save_as(name)
    runpy.run_path("program.py")
    assert Path("mask.png").read_bytes() == Path("drawn.png").read_bytes()
    labels = np.asarray(Image.open("mask.png"))
    assert labels[60, 10] == 0 and labels[60, 150] == 1

    before = answers(page)
    page.locator("#undo").click()
    page.locator("#message").get_by_text("two labels").wait_for()
    assert page.locator("#get-mask").is_disabled()


def test_drawing_by_keyboard_and_scores_from_a_file(page, tmp_path):
    (tmp_path / "own.png").write_bytes(png(two_halves(60, 80)))
    scores = np.random.default_rng(0).dirichlet([1, 1, 1], (60, 80))
    (tmp_path / "scores.npy").write_bytes(npy(scores))
    page.locator("#picture-file").set_input_files(tmp_path / "own.png")
    page.locator("#message").get_by_text("two labels").wait_for()
    page.get_by_text("File", exact=True).click()
    page.locator("#message").get_by_text("file of scores").wait_for()
    before = answers(page)
    page.locator("#scores-file").set_input_files(tmp_path / "scores.npy")
    wait_for_answer(page, before)
    assert page.locator("#labels input").count() == 3
    assert len(np.unique(pixels(page, "alone").reshape(-1, 3), axis=0)) == 3
    first = pixels(page, "refined")

    page.get_by_label("Label 2", exact=True).check()
    before = answers(page)
    page.locator("#overlay").focus()
    for key in (" ", *["ArrowRight"] * 4, " "):
        page.keyboard.press(key)
    wait_for_answer(page, before)
    found = pixels(page, "refined")
    assert (found[30, 40:60] == found[30, 40]).all()
    assert (found != first).any()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 664)])
def test_the_place_of_scores_and_the_balance(browser, address, tmp_path, width, height):
    phone = width < 500
    context = browser.new_context(
        viewport={"width": width, "height": height}, has_touch=phone, is_mobile=phone
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    asked = []
    page.on("request", lambda one: asked.append(one.post_data_json) if "/api/solve" in one.url else None)
    page.goto(address)
    page.locator("#pictures [aria-pressed=true]").wait_for()
    scores = np.random.default_rng(0).dirichlet([1, 1, 1], (8, 11))
    (tmp_path / "own.png").write_bytes(png(two_halves(60, 84)))
    (tmp_path / "scores.npy").write_bytes(npy(scores))
    page.locator("#picture-file").set_input_files(tmp_path / "own.png")
    page.locator("#message").get_by_text("two labels").wait_for()
    page.get_by_text("File", exact=True).click()
    before = answers(page)
    page.locator("#scores-file").set_input_files(tmp_path / "scores.npy")
    wait_for_answer(page, before)
    shown = {"centers": pixels(page, "alone")}
    for align in ("corners", "8,0"):
        before = answers(page)
        page.locator("#align").fill(align)
        page.locator("#align").press("Enter")
        wait_for_answer(page, before)
        shown[align] = pixels(page, "alone")
    assert (shown["centers"] != shown["corners"]).any() and (shown["corners"] != shown["8,0"]).any()
    colours = [shown["8,0"][8 * y, 8 * x] for y, x in np.ndindex(8, 11)]
    labels = scores.argmax(-1).ravel()
    for label in range(3):  # samples lie at every eighth pixel, and each label has one colour
        assert len({tuple(c) for c, one in zip(colours, labels, strict=True) if one == label}) == 1
    page.locator("#align").fill("5,0")
    page.locator("#align").press("Enter")
    page.locator("#message").get_by_text("stride 5 and offset 0").wait_for()
    before = answers(page)
    page.locator("#align").fill("8,0")
    page.locator("#align").press("Enter")
    wait_for_answer(page, before)

    assert asked[-1]["balance"] == 0.3
    before = answers(page)
    page.locator("#balance").press("End")
    wait_for_answer(page, before)
    assert asked[-1]["balance"] == 1
    found = page.evaluate(SMALL)
    assert found["outside"] == [] and found["clipped"] == []
    box = page.locator("#align").bounding_box()
    assert box["width"] > 100 and box["height"] >= (40 if phone else 25)
    page.locator("#h-scores").scroll_into_view_if_needed()
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"demo-place-{width}.png")
    context.close()


def test_of_two_pictures_chosen_in_a_row_the_last_is_shown(page, monkeypatch):
    wait_for_answer(page, 0)
    read = demo_app.pictures.bundled

    def slowly(name):
        time.sleep(1.0 if name == "coins" else 0.0)
        return read(name)

    monkeypatch.setattr(demo_app.pictures, "bundled", slowly)
    before = answers(page)
    for name in ("coins", "chelsea"):
        page.locator(f"#pictures [data-name={name}]").click()
    page.locator("#pictures [data-name=chelsea][aria-pressed=true]").wait_for()
    wait_for_answer(page, before)
    assert "cat" in page.locator("#labels").inner_text()
    page.wait_for_timeout(1000)  # the slow picture must not replace the last one on the server
    with page.expect_download() as download:
        page.locator("#get-mask").click()
    with Image.open(download.value.path()) as mask:
        assert mask.size == (451, 300)
    slide(page, "num_steps", ["ArrowLeft"])
    assert pixels(page, "refined").shape[:2] == (300, 451)
    assert page.locator("#message").get_attribute("class") == ""


def boxes(page, *names):
    return [page.locator(f"#{name}").bounding_box() for name in names]


def overlap(one, other):
    """Area that two boxes share."""
    sides = [
        min(one[at] + one[size], other[at] + other[size]) - max(one[at], other[at])
        for at, size in (("x", "width"), ("y", "height"))
    ]
    return max(0, sides[0]) * max(0, sides[1])


def test_a_hint_covers_no_picture_and_ends_with_the_first_labels(page):
    choose(page, "coins")
    page.locator("#clear").click()
    page.locator("#message").get_by_text("two labels").wait_for()
    message, canvas = boxes(page, "message", "overlay")
    assert overlap(message, canvas) == 0
    page.evaluate("""() => {
        window.seen = [];
        const [mask, message] = ["get-mask", "message"].map((id) => document.getElementById(id));
        const note = () => window.seen.push([!mask.disabled, message.textContent.includes("two labels")]);
        for (const one of [mask, message])
            new MutationObserver(note).observe(one, { attributes: true, childList: true });
    }""")
    before = answers(page)
    draw(page, [(10, 20), (20, 80)])
    page.get_by_label("Label 1", exact=True).check()
    draw(page, [(50, 35), (50, 80)])
    wait_for_answer(page, before)
    seen = page.evaluate("window.seen")
    assert [True, False] in seen
    assert [True, True] not in seen  # labels are shown, and the hint still asks for strokes


def test_cleared_strokes_end_the_request_under_way(page):
    choose(page, "coins")
    page.route("**/api/solve", lambda route: None)  # an answer that does not come
    with page.expect_request("**/api/solve"):
        page.locator("#num_steps").press("ArrowLeft")
    with page.expect_event("requestfailed", timeout=5000):
        page.locator("#clear").click()
    assert "two labels" in page.locator("#message").inner_text()
    assert page.locator("#get-mask").is_disabled()
    assert not page.evaluate("document.body.classList.contains('busy')")


def test_what_is_wrong_with_a_file_is_said(browser, address, tmp_path):
    (tmp_path / "broken.png").write_bytes(png(two_halves())[:100])
    page = browser.new_page()
    page.goto(address)
    page.locator("#pictures [aria-pressed=true]").wait_for()
    page.locator("#picture-file").set_input_files(tmp_path / "broken.png")
    page.locator("#message").get_by_text("broken.png cannot be decoded").wait_for()
    page.close()


def test_the_divider_separates_the_networks_labels_from_refined_labels(page):
    wait_for_answer(page, 0)
    width = pixels(page, "overlay").shape[1]
    shown = {}
    for end in ("Home", "End"):
        page.locator("#divider").press(end)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        shown[end] = pixels(page, "overlay")
    differ = (pixels(page, "alone") != pixels(page, "refined")).any(-1)
    assert differ.mean() > 0.01
    # The background is left out, so a label that appears or disappears changes the picture.
    assert (shown["Home"] != shown["End"]).any(-1)[differ].all()
    page.locator("#divider").fill("0.5")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    both, half = pixels(page, "overlay"), width // 2
    assert (both[:, : half - 2] == shown["End"][:, : half - 2]).all()
    assert (both[:, half + 2 :] == shown["Home"][:, half + 2 :]).all()


def test_the_page_starts_from_the_settings_of_refine_and_asks_with_exact_values(page, monkeypatch):
    odd = {
        "solver": solvers.get("efw", weight=0.123),
        "num_steps": 7,
        "kernels": (Spatial(2.7, weight=0.37), Bilateral(67.3, 9.1, weight=3.14)),
    }
    monkeypatch.setattr(presets, "PRESETS", {**presets.PRESETS, "odd": odd})
    asked = []
    page.on("request", lambda one: asked.append(one.post_data_json) if "/api/solve" in one.url else None)
    page.reload()
    wait_for_answer(page, 0)
    assert asked[-1].items() >= {"scores": "network", "preset": "default", "num_labels": 21}.items()
    assert asked[-1].items() >= presets.controls("default").items()
    assert page.locator("#reset").is_disabled()
    before = answers(page)
    page.locator("#preset").select_option("odd")
    wait_for_answer(page, before)
    assert asked[-1].items() >= {"preset": "odd", **presets.controls("odd")}.items()
    assert asked[-1]["bilateral"] == {"xy": 67.3, "color": 9.1, "weight": 3.14}
    slide(page, "bilateral-weight", ["ArrowRight"])
    assert asked[-1]["bilateral"] == {"xy": 67.3, "color": 9.1, "weight": 3.2}
    before = answers(page)
    page.locator("#reset").click()
    wait_for_answer(page, before)
    assert asked[-1].items() >= presets.controls("odd").items()


SMALL = """() => {
    const touched = "button, select, .button, input[type=range], .chips span, .segmented span";
    const all = (which) => [...document.querySelectorAll(which)].filter((one) => one.offsetParent !== null);
    const names = (which, is) => all(which).filter((one) => is(one, one.getBoundingClientRect()))
        .map((one) => one.id || one.textContent || one.className);
    return {
        count: all(touched).length,
        small: names(touched, (one, box) => Math.min(box.width, box.height) < 40),
        clipped: names("button, .button, span, strong, h2, p, dt, dd, output",
            (one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== "inline"),
        outside: names("body *", (one, box) => box.right > innerWidth + 0.5 || box.left < -0.5),
    };
}"""


@pytest.mark.parametrize(
    ("width", "height", "name"),
    [(1280, 800, "rocket"), (390, 664, "camera")],  # a wide picture, a square one
)
def test_labels_and_picture_are_on_one_screen(browser, address, width, height, name):
    phone = width < 500
    context = browser.new_context(
        viewport={"width": width, "height": height}, has_touch=phone, is_mobile=phone
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(address)
    page.locator("#pictures [aria-pressed=true]").wait_for()
    choose(page, name)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("scrollY") == 0
    for box in boxes(page, "choice", "divider", "overlay", "message", "labels"):
        assert box["y"] >= 0 and box["y"] + box["height"] <= height
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
    canvas = boxes(page, "overlay")[0]
    assert canvas["width"] * canvas["height"] > 0.2 * width * height
    found = page.evaluate(SMALL)
    assert found["count"] > 25
    assert found["outside"] == [] and found["clipped"] == []
    if phone:
        assert found["small"] == []
        before, seen = answers(page), pixels(page, "refined")
        label = page.locator("#labels label").last
        label.tap()
        page.touchscreen.tap(canvas["x"] + canvas["width"] / 2, canvas["y"] + 20)
        wait_for_answer(page, before)
        changed = (pixels(page, "refined") != seen).any(-1)
        assert changed[:60, changed.shape[1] // 2 - 20 : changed.shape[1] // 2 + 20].any()
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"demo-{name}-{width}.png")
    context.close()


@pytest.mark.parametrize(
    ("name", "width", "height", "scheme"), [("tablet", 820, 1180, "light"), ("dark", 1366, 900, "dark")]
)
def test_other_screens(browser, address, name, width, height, scheme):
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    wait_for_answer(page, 0)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"demo-{name}.png", full_page=True)
    context.close()
