"""The web application: one function per route."""

from __future__ import annotations

import asyncio
import io
import ipaddress
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from functools import cache, partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from threading import Event as Flag
from threading import Lock
from typing import Any

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from fwcrf.apps.batch.job import recorded_warnings, without_void
from fwcrf.apps.demo import pictures, presets
from fwcrf.apps.demo.colours import TRUST
from fwcrf.apps.demo.guard import Guard
from fwcrf.apps.demo.request import LABELS
from fwcrf.apps.demo.request import Request as Asked
from fwcrf.apps.demo.sessions import Given, Picture, Session, Sessions
from fwcrf.apps.demo.snippet import snippet
from fwcrf.apps.demo.solve import Stale, answer, network_scores, read_logits
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.formats import format_of
from fwcrf.apps.files.labels import encode_labels
from fwcrf.apps.files.limits import in_words
from fwcrf.apps.files.pictures import write_colours
from fwcrf.apps.files.safe_json import load_json
from fwcrf.apps.files.scores import align_of, read_scores
from fwcrf.inputs.resample import Align

STATIC = Path(__file__).parent / "static"
# Most bytes of an upload: a picture, a file of scores, JSON. Most bytes of decoded scores in memory.
MOST_PICTURE = 20_000_000
MOST_SCORES = 50_000_000
MOST_JSON = 1_000_000
SCORES_LIMIT = 200_000_000
# Most seconds between two parts of an upload, and for all of it.
PATIENCE = 20.0
LONGEST_UPLOAD = 300.0
# Most requests that are computed at a time; further requests wait.
AT_A_TIME = 2

_LINES = "application/x-ndjson"
_STALE = b'{"event": "stale"}\n'
_KINDS = ("probabilities", "logits", "labels", "mask")
# Recording warnings is global; without a lock a thread would record another thread's warnings.
_recording = Lock()


class Refused(Exception):
    """Rejects a request with a status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def create_app(host: str = "127.0.0.1", sessions: Sessions | None = None) -> Guard:
    """The application inside its ``Guard``, which refuses requests under other names than ``host``."""
    routes = [
        Route("/", _page),
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/thumbnails/{name}", _thumbnail),
        Route("/api/session", _begin, methods=["POST"]),
        Route("/api/picture", _picture, methods=["GET", "POST"]),
        Route("/api/scores", _scores, methods=["POST"]),
        Route("/api/solve", _solve, methods=["POST"]),
        Route("/api/mask", _mask),
        Route("/api/snippet", _snippet),
    ]
    handlers: Any = {Refused: _error, ValueError: _error, ClientDisconnect: _error}
    app = Starlette(routes=routes, exception_handlers={**handlers, Exception: _failed})
    app.state.sessions = Sessions() if sessions is None else sessions
    app.state.limiter = None  # created on first use, inside the event loop
    # Guard is outermost: Starlette answers unexpected exceptions outside of the middleware in its list.
    return Guard(app, host)


async def _error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, getattr(error, "status", 400))


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "the server failed on this request; its terminal shows the cause."}, 500)


async def _page(request: Request) -> Response:
    return Response(_file("index.html"), media_type="text/html")


@cache
def _file(name: str) -> bytes:
    return (STATIC / name).read_bytes()


async def _thumbnail(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in pictures.BUNDLED:
        raise Refused(404, "there is no such picture.")
    content = await _work(request, partial(_small, name))
    return Response(content, media_type="image/jpeg", headers={"Cache-Control": "max-age=3600"})


@cache
def _small(name: str) -> bytes:
    file = io.BytesIO()
    write_colours(file, pictures.fitted(pictures.bundled(name), 160), "JPEG")
    return file.getvalue()


async def _begin(request: Request) -> Response:
    # A page of another origin needs a CORS preflight for this header, and that is refused.
    if request.headers.get("x-fwcrf") != "1":
        raise Refused(403, "expected the header X-Fwcrf: 1.")
    shown = [{"name": name, "title": one.title} for name, one in pictures.BUNDLED.items()]
    return JSONResponse(
        {
            "session": request.app.state.sessions.begin(_visitor(request)),
            "pictures": shown,
            "presets": {name: dict(presets.controls(name)) for name in presets.PRESETS},
            "solvers": [
                {"name": name, "title": title, "weight": presets.default_lambda(name)}
                for name, title in presets.SOLVERS.items()
            ],
            "trust": TRUST,
        }
    )


async def _picture(request: Request) -> Response:
    session = _session(request)
    if request.method == "GET":
        if session.picture is None:
            raise Refused(404, "there is no picture yet.")
        return Response(await _work(request, partial(_png, session.picture.values)), media_type="image/png")
    bundled = request.query_params.get("bundled")
    if bundled is not None:
        values = await _work(request, partial(pictures.bundled, bundled))
        network = await _work(request, partial(network_scores, bundled, values.shape[:2]))
        strokes = pictures.example_strokes(bundled, values.shape[:2])
        picture = Picture(values, bundled, bundled=True)
    else:
        name = _name(request)
        values = await _uploaded(request, MOST_PICTURE, name, pictures.read_picture)
        network, strokes, picture = None, [], Picture(values, name, bundled=False)
    session.turn += 1
    session.picture, session.network, session.uploaded, session.result = picture, network, None, None
    session.kept.clear()
    return JSONResponse(
        {
            "width": values.shape[1],
            "height": values.shape[0],
            "strokes": [stroke._asdict() for stroke in strokes],
            "names": [] if network is None else list(network.names),  # labels of the network
        }
    )


async def _scores(request: Request) -> Response:
    session = _session(request)
    picture = session.picture
    if picture is None:
        raise Refused(400, "there is no picture yet; expected one to be chosen first.")
    kind = request.query_params.get("kind") or None
    if kind is not None and kind not in _KINDS:
        raise Refused(400, f"kind={kind[:40]!r}; expected {', '.join(_KINDS)}.")
    try:
        align = align_of(request.query_params.get("align") or "centers")
    except ValueError as error:
        raise Refused(400, f"align={error}") from None
    name = _name(request)
    shape = picture.values.shape[:2]
    uploaded, said = await _uploaded(
        request, MOST_SCORES, name, partial(_read, kind=kind, name=name, shape=shape, align=align)
    )
    if session.picture is not picture:
        raise Refused(409, "another picture was chosen in the meantime.")
    session.turn += 1
    session.uploaded, session.result = uploaded, None
    return JSONResponse({"num_labels": uploaded.logits.shape[-1], "kind": uploaded.kind, "notes": list(said)})


def _read(
    path: Path, kind: Any, name: str, shape: tuple[int, int], align: Align
) -> tuple[Given, tuple[str, ...]]:
    if format_of(path) not in ("npy", "npz", "png"):
        raise FileError(f"{path} is not a file of scores; expected .npy, .npz or PNG.")
    axis = -1
    given = read_scores(path, kind=kind, limit=SCORES_LIMIT)
    if (
        given.kind != "labels"
        and given.values.ndim == 3
        and given.values.shape[-1] > LABELS[1] >= given.values.shape[0]
    ):
        axis = 0
        given = read_scores(path, kind=kind, limit=SCORES_LIMIT, label_axis=0)
    values = given.values
    if values.ndim not in ((2,) if given.kind == "labels" else (2, 3)) or 0 in values.shape:
        raise FileError(
            f"{path} has shape {values.shape}; expected (height, width, labels), or (height, width)."
        )
    with _recording, recorded_warnings() as messages:
        if given.kind == "labels":
            values = values if kind == "mask" else without_void(values, 255, str(path))
            _check_count(path, int(values.max()) + 1)
        else:
            values = values.astype("float32")
            _check_count(path, values.shape[-1] if values.ndim == 3 and values.shape[-1] > 1 else 2)
        logits, rarity = read_logits(values, given.kind, shape, align)
    return Given(logits, rarity, name, kind or given.kind, axis, align), tuple(messages)


def _check_count(path: Path, count: int) -> None:
    if count > LABELS[1]:
        raise FileError(f"{path} has {count} labels; expected at most {LABELS[1]}.")


async def _solve(request: Request) -> Response:
    session = _session(request)
    asked = Asked.of(_json(await _body(request, MOST_JSON)))
    session.turn += 1
    turn, disconnected = session.turn, Flag()
    events = answer(session, asked, lambda: disconnected.is_set() or session.turn != turn)
    # Compute the first event before the response starts, so that an error still sets the status.
    try:
        first = await _work(request, partial(next, events))
    except Stale:
        return Response(_STALE, media_type=_LINES)

    async def lines() -> AsyncIterator[bytes]:
        try:
            event = first
            while event is not None:
                yield json.dumps(event).encode() + b"\n"
                event = await _work(request, partial(next, events, None))
        except Stale:
            yield _STALE
        finally:
            disconnected.set()
            request.app.state.sessions.tidy()

    return StreamingResponse(lines(), media_type=_LINES)


async def _mask(request: Request) -> Response:
    result = _finished(request)
    file = io.BytesIO()
    encode_labels(file, "mask.png", result.labels)
    return Response(file.getvalue(), media_type="image/png", headers=_attached("mask.png"))


async def _snippet(request: Request) -> Response:
    text = snippet(_finished(request))
    return Response(text, media_type="text/x-python", headers=_attached("refine_mask.py"))


def _finished(request: Request) -> Any:
    result = _session(request).result
    if result is None:
        raise Refused(404, "there are no labels yet.")
    return result


def _attached(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _session(request: Request) -> Session:
    found = request.app.state.sessions.get(request.headers.get("x-session", ""))
    if found is None:
        raise Refused(410, "this page's session has expired; reload the page.")
    return found


def _visitor(request: Request) -> str:
    """Network address of the visitor. Of IPv6 the first 64 bits: one machine has the rest to itself."""
    host = request.client.host if request.client is not None else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), 64), strict=False))


def _name(request: Request) -> str:
    """Name of the uploaded file, without folders and unprintable characters."""
    given = PureWindowsPath(PurePosixPath(request.query_params.get("name", "")).name).name
    return "".join(c for c in given if c.isprintable())[:100] or "file"


def _json(body: bytes) -> Any:
    try:
        return load_json(body, "the request")
    except FileError as error:
        raise Refused(400, str(error)) from None


async def _body(request: Request, most: int) -> bytes:
    parts: list[bytes] = []
    await _receive(request, most, parts.append)
    return b"".join(parts)


async def _uploaded(request: Request, most: int, name: str, read: Callable[[Path], Any]) -> Any:
    """Result of ``read`` for the uploaded file, which is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="fwcrf-demo-") as folder:
        path = Path(folder) / "upload"
        with open(path, "wb") as file:
            await _receive(request, most, file.write)
        try:
            return await _work(request, partial(read, path))
        except ValueError as error:
            raise Refused(400, str(error).replace(str(path), name)) from error
        except MemoryError:
            raise Refused(413, f"there is too little memory for {name}.") from None


async def _receive(request: Request, most: int, take: Callable[[bytes], Any]) -> None:
    """Pass each part of the request's body to ``take``, with limits on size and waiting time."""
    stated = request.headers.get("content-length", "0")
    size = 0 if not stated.isdecimal() or int(stated) <= most else most + 1
    stream = request.stream().__aiter__()
    end = time.monotonic() + LONGEST_UPLOAD
    while size <= most:
        try:
            part = await asyncio.wait_for(anext(stream), min(PATIENCE, end - time.monotonic()))
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Refused(408, "the upload stopped; try again.") from None
        size += len(part)
        if size <= most:
            take(part)
    raise Refused(413, f"the upload is too large; expected at most {in_words(most)}.")


async def _work(request: Request, function: Callable[[], Any]) -> Any:
    """Result of ``function``, run in a thread; at most ``AT_A_TIME`` run at a time."""
    state = request.app.state
    if state.limiter is None:
        state.limiter = CapacityLimiter(AT_A_TIME)
    return await anyio.to_thread.run_sync(function, limiter=state.limiter)


def _png(image: Any) -> bytes:
    file = io.BytesIO()
    write_colours(file, image)
    return file.getvalue()
