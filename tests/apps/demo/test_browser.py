"""The page in a real browser: draw, slide, look, download. Skipped where there is none: ``make browser``."""

import base64
import io
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from browsers import find_browser
from demo_pages import npy, png, served, two_halves
from PIL import Image

from fwcrf.apps.demo.solve import warm_up

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
    assert len(points) == 11
    heights = [float(point.split(",")[1]) for point in points]
    assert heights[-1] > heights[0]  # downwards: the energy falls
    assert re.fullmatch(r"[\d.]+ ms", page.locator("#time").inner_text())
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / "demo.png", full_page=True)

    slide(page, "bilateral-weight", ["Home"])
    assert (pixels(page, "refined") != refined).any()
    assert (pixels(page, "alone") == alone).all()
    slide(page, "num_steps", ["ArrowLeft", "ArrowLeft"])
    assert len(page.locator("#plot polyline.s0").get_attribute("points").split()) == 9
    assert page.locator("#num_steps").get_attribute("aria-valuetext") == "8"
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
    page.get_by_text("From a file").click()
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


def test_what_is_wrong_with_a_file_is_said(browser, address, tmp_path):
    (tmp_path / "broken.png").write_bytes(png(two_halves())[:100])
    page = browser.new_page()
    page.goto(address)
    page.locator("#pictures [aria-pressed=true]").wait_for()
    page.locator("#picture-file").set_input_files(tmp_path / "broken.png")
    page.locator("#message").get_by_text("broken.png cannot be decoded").wait_for()
    page.close()


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
