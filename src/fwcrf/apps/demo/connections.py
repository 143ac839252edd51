"""Connections that wait for their client only for a time: headers, body, and reading of the answer.

A client that sends half a request holds its connection open. Such connections are closed, so that they do not
keep other visitors out: after a time, and before it if there are too many, the oldest first.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fwcrf.apps.demo.guard import HEADERS

# Most seconds from the opening of a connection, or from the last answer, to complete headers.
HEADERS_PATIENCE = 10.0
# Most seconds for which a client does not read its answer.
READING_PATIENCE = 20.0
# Most connections that wait for their client; a further one replaces the one that has waited longest.
MOST_WAITING = 100


class Connection(H11Protocol):
    """HTTP/1.1 connection with time-outs. Without them uvicorn waits forever for the end of headers."""

    _since: float = 0.0  # time since which the connection waits for its client
    _headers_timer: asyncio.TimerHandle | None = None
    _reading_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._since = self.loop.time()
        self._set_headers_timer()
        waiting = [one for one in self.connections if isinstance(one, Connection) and one._waits]
        if len(waiting) > MOST_WAITING:
            min(waiting, key=lambda one: one._since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_timer = _cancelled(self._headers_timer)
        self._reading_timer = _cancelled(self._reading_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._answering:
            self._headers_timer = _cancelled(self._headers_timer)

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        # First, because the call below may begin the answer to the next request of the client.
        self._set_headers_timer()
        super().on_response_complete()
        if self._answering:
            self._headers_timer = _cancelled(self._headers_timer)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading_timer = self.loop.call_later(READING_PATIENCE, self.transport.abort)

    def resume_writing(self) -> None:
        self._reading_timer = _cancelled(self._reading_timer)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer to bytes that are not HTTP, with the security headers of all other answers."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()  # in the middle of an answer
            return
        headers = [("content-type", "text/plain; charset=utf-8"), ("connection", "close"), *HEADERS.items()]
        response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (response, h11.Data(data=msg.encode("ascii")), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def _answering(self) -> bool:
        """True from complete headers to the end of the answer."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _waits(self) -> bool:
        """True while headers or body are incomplete, unless the connection is being closed."""
        return not self.transport.is_closing() and (not self._answering or self.cycle.more_body)

    def _set_headers_timer(self) -> None:
        # abort(), because close() would wait until the client has read all.
        self._headers_timer = _cancelled(self._headers_timer)
        self._headers_timer = self.loop.call_later(HEADERS_PATIENCE, self.transport.abort)


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
