"""Access control: only pages of this server may send requests, a bounded number at a time.

Guard is outside of everything else, so that every response has the security headers, errors too.

A page of another site can send requests to this server, by a form or by a host name that resolves to this
machine. ``Host`` and ``Origin`` reveal such requests, because a page cannot set these headers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# Most requests that are answered at a time; connections bounds the number that wait for their clients.
MOST_REQUESTS = 200


def is_loopback(host: str) -> bool:
    """True if a host name is reachable from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _normal(name: str) -> str:
    """Host name as a browser sends it: in lower case, international names encoded, without a last dot."""
    try:
        return name.rstrip(".").encode("idna").decode().lower()
    except UnicodeError:
        return name.rstrip(".").lower()


class Guard:
    """ASGI middleware that answers 421 or 403 to requests of other sites, 503 to too many requests."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], host: str) -> None:
        self.app = app
        self.host = host
        self.active: int = 0  # requests that are being answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self.refusal(Headers(scope=scope), scope.get("scheme", "http"))
        self.active += 1
        try:
            await (refused or self.app)(scope, receive, send_with_headers)  # type: ignore[operator]
        finally:
            self.active -= 1

    def refusal(self, headers: Headers, scheme: str) -> JSONResponse | None:
        """Error response to a request of another site, or to one too many; else None."""
        if not self._addressed(headers.getlist("host")):
            return JSONResponse({"error": "unknown host name; use the address that the server printed."}, 421)
        origin = headers.get("origin")
        if origin is not None and origin != f"{scheme}://{headers['host']}":
            return JSONResponse({"error": "requests of other sites are refused."}, 403)
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return JSONResponse({"error": "requests of other sites are refused."}, 403)
        if self.active >= MOST_REQUESTS:
            return JSONResponse({"error": "the server is busy; try again in a minute."}, 503)
        return None

    def _addressed(self, hosts: list[str]) -> bool:
        """True for a loopback address, ``self.host``, and any IP address if the server is public."""
        if len(hosts) != 1:
            return False
        name = hosts[0].rpartition(":")[0] if not hosts[0].endswith("]") and ":" in hosts[0] else hosts[0]
        name = name.removeprefix("[").removesuffix("]")
        if is_loopback(name.lower()) or _normal(name) == _normal(self.host):
            return True
        if is_loopback(self.host):
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
