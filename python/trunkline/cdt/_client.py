"""nats-py's client, as our connections need it."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import nats.errors
from nats.aio.client import PING_PROTO, Client
from nats.protocol.parser import Parser

from trunkline._native.cdt import Inflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.cdt._connection import Deliver

__all__ = ["PINGS", "PING_S", "UNENCRYPTED", "Guarded"]

# The interval of pings, and how many may be unanswered.
PING_S = 10.0
PINGS = 2

# Bytes per read.
_READ_BYTES = 256 << 10

# The timeout of opening a connection, and how often to check a full WebSocket for room.
_OPEN_S = 5.0
_LOOK_S = 0.01

UNENCRYPTED = "the server does not encrypt: set up TLS there, or leave out tls and tls://"


class _Unencrypted(nats.errors.Error):
    def __str__(self) -> str:
        return UNENCRYPTED


class _Receiving(asyncio.BufferedProtocol):
    """Parses messages of our subscriptions from TCP, many at a time, ten times as fast as nats-py, which reads the rest."""

    def __init__(self, client: Guarded, rest: asyncio.StreamReaderProtocol) -> None:
        self._client = client
        self._rest = rest
        self._buffer = bytearray(_READ_BYTES)
        # TLS reads into slices of this: slices of the bytearray itself would be copies.
        self._view = memoryview(self._buffer)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        rest = self._client.take(self._buffer, nbytes)
        if rest:
            self._rest.data_received(rest)

    def eof_received(self) -> None:
        self._rest.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest.connection_lost(exc)

    def pause_writing(self) -> None:
        self._rest.pause_writing()

    def resume_writing(self) -> None:
        self._rest.resume_writing()


class _Reading(Parser):
    """The same for a WebSocket."""

    nc: Guarded

    async def parse(self, data: bytes = b"") -> None:
        if self.nc.writer is None:
            await self.nc.may_read.wait()
            data = self.nc.take(bytearray(data), len(data))
        try:
            await super().parse(data)
        except (asyncio.CancelledError, nats.errors.ProtocolError):
            raise
        except Exception as error:
            # It would end the reader, and the connection would receive nothing more.
            raise nats.errors.ProtocolError from error


class Guarded(Client):
    """A client that survives any message, and delivers messages of our subscriptions as they come.

    It overrides eight methods of nats-py. The parser calls the first two for every message, and an exception of theirs would end its
    reader. The third writes a ping before queued data, so that the pong would not cover that. The fourth opens a connection, over a
    WebSocket for minutes. The fifth sets one up, and after anything unexpected tries no other server. The sixth ends the client for good
    after any error that a server sends before it closes a connection, such as an expired login. The seventh waits for ever if the
    server of the last connection does not read. The eighth encrypts only if the server requires it, and would send passwords in clear
    text otherwise; and it ignores changed limits.
    """

    def __init__(self, deliver: Deliver, limits_changed: Callable[[], None]) -> None:
        super().__init__()
        self._deliver = deliver
        self._limits_changed = limits_changed
        self.inflow = Inflow()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self._ps = _Reading(self)

    def take(self, buffer: bytearray, nbytes: int) -> bytes:
        """Delivers messages of our subscriptions; returns the rest of the data."""
        try:
            messages, rest = self.inflow.feed(buffer, nbytes)
        except ValueError as error:
            self.inflow.reset()
            self.abort()
            # Over a WebSocket nats-py's parser is the caller.
            if self.writer is None:
                raise nats.errors.ProtocolError from error
            logging.getLogger("trunkline.cdt").warning("the connection to the NATS server was ended: %s", error)
            return b""
        if messages:
            self._deliver(messages)
        return rest

    def pause(self) -> None:
        """Stops reading until `resume`."""
        self.may_read.clear()
        # The transport of a lost connection may be half closed.
        if self.is_connected and self.writer is not None:
            self._reading_transport.pause_reading()

    def resume(self) -> None:
        """Reads again."""
        self.may_read.set()
        if self.is_connected and self.writer is not None:
            self._reading_transport.resume_reading()

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except Exception:  # noqa: BLE001 - any error is of the sender's data
            logging.getLogger("trunkline.cdt").debug("a header block of NATS that is none: %r", headers)
            return {}

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Any:
        try:
            return super()._build_message(sid, subject, reply, data, headers)
        except UnicodeDecodeError:
            return None

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if future is None and not self.may_read.is_set():
            # While paused we do not read pongs: TCP_USER_TIMEOUT detects a server that does not read.
            self._pings_outstanding = 0
        elif future is not None:
            # The caller may have given up by then: setting a result would raise in the client's reader.
            pong.add_done_callback(lambda _: None if future.done() else future.set_result(True))
        self._pongs.append(pong)
        await self._send_command(PING_PROTO)
        await self._flush_pending()

    async def _process_connect_init(self) -> None:
        self._set_timeout()
        try:
            await super()._process_connect_init()
        except (OSError, nats.errors.Error):
            raise
        except Exception as error:
            message = f"it does not speak NATS: {error}"
            raise nats.errors.Error(message) from error
        self._receive()

    async def _connect_to_server(self, server: Any) -> None:
        # The transport of a failed attempt would stay open.
        self.abort()
        await asyncio.wait_for(super()._connect_to_server(server), _OPEN_S)

    async def _process_err(self, err_msg: str) -> None:
        if self.is_connected and "permissions violation" not in err_msg.lower():
            error = nats.errors.Error(err_msg.strip("'"))
            await self._error_cb(error)
            await self._process_op_err(error)
            return
        await super()._process_err(err_msg)

    async def _attempt_reconnect(self) -> None:
        self.abort()
        await super()._attempt_reconnect()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002 - as nats-py has it
        most = info.get("max_payload", self._max_payload)
        if type(most) is not int or most < 0:
            # The same error as for other data that is not NATS, at the start of a connection and later.
            message = f"max_payload is {most!r}"
            raise ValueError(message)
        await super()._process_info(info, initial_connection)
        if not initial_connection and most != self._max_payload:
            self._max_payload = most
            self._limits_changed()
        server = self._current_server
        is_wanted = "tls" in self.options or (server is not None and server.uri.scheme == "tls")
        if initial_connection and is_wanted:
            if not (info.get("tls_required") or info.get("tls_available")):
                raise _Unencrypted
            info["tls_required"] = True

    @property
    def writer(self) -> asyncio.StreamWriter | None:
        """The writer of a connection over TCP; None over a WebSocket."""
        writer: asyncio.StreamWriter | None = getattr(self._transport, "_io_writer", None)
        return writer

    @property
    def _reading_transport(self) -> asyncio.Transport:
        assert self.writer is not None
        return cast("asyncio.Transport", self.writer.transport)

    def abort(self) -> None:
        """Aborts a connection: nats-py would wait until all is written, for ever if the server does not read."""
        # A TLS transport that was closed twice has nothing left to abort.
        if self.writer is not None:
            with suppress(AttributeError):
                self.writer.transport.abort()

    async def end(self) -> None:
        """Cleans up a connection that nats-py could not close."""
        self.abort()
        session = getattr(self._transport, "_client", None)
        if session is not None:
            await session.close()

    def _set_timeout(self) -> None:
        """Lets the system end a connection if the server reads nothing."""
        option = getattr(socket, "TCP_USER_TIMEOUT", None)
        if self.writer is not None and option is not None:
            given_ms = int(PING_S * (PINGS + 1) * 1000)
            self.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, option, given_ms)

    def _receive(self) -> None:
        """Starts to receive on a new connection."""
        self.inflow.reset()
        if self.writer is not None:
            transport = self._reading_transport
            transport.set_protocol(_Receiving(self, cast("asyncio.StreamReaderProtocol", transport.get_protocol())))
            if not self.may_read.is_set():
                transport.pause_reading()

    def write(self, data: bytes) -> None:
        """Writes at once, where nats-py would use a task: after queued data, or queued itself without a connection."""
        self._pending.append(data)
        self._pending_data_size += len(data)
        if not self.is_connected:
            return
        if self.writer is None:
            assert self._flush_queue is not None
            # A WebSocket writes in a coroutine, which a full queue wakes anyway.
            with suppress(asyncio.QueueFull):
                self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())
            return
        # `join` of a single item makes no copy.
        self.writer.write(b"".join(self._pending))
        self._pending = []
        self._pending_data_size = 0

    @property
    def is_full(self) -> bool:
        """Whether the write buffer is full."""
        if not self.is_connected:
            return False
        if self.writer is None:
            return bool(self._pending_data_size > _READ_BYTES)
        transport = self.writer.transport
        _, most = transport.get_write_buffer_limits()
        return transport.get_write_buffer_size() > most

    async def room(self) -> None:
        """Waits until there is room, or the connection is lost."""
        await asyncio.sleep(0)
        while self.writer is None and self.is_full:  # noqa: ASYNC110 - as it says
            # A WebSocket has no event for it.
            await asyncio.sleep(_LOOK_S)
        with suppress(OSError):
            if self.writer is not None:
                await self.writer.drain()

    @property
    def spare_bytes(self) -> int:
        """The room for data that is queued until the next connection."""
        return max(0, self._max_pending_size - self._pending_data_size)
