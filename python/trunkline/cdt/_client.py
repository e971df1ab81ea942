"""nats-py's client, as our connections need it."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import nats.errors
from nats.aio.client import PING_PROTO, Client
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from trunkline._native.cdt import deliveries

if TYPE_CHECKING:
    from trunkline.cdt._connection import Deliver

__all__ = ["PINGS", "PING_S", "UNENCRYPTED", "Guarded"]

# How often a server is asked whether it is there, and how often it may leave that unanswered.
PING_S = 10.0
PINGS = 2

# What is read from the system before it is looked at; at most twice that.
_READ_BYTES = 256 << 10

UNENCRYPTED = "the server does not encrypt: set up TLS there, or leave out tls and tls://"


class _Unencrypted(nats.errors.Error):
    def __str__(self) -> str:
        return UNENCRYPTED


class _Headers(dict[str, str]):
    """The headers of a message, and the block they were read from."""

    block: bytes = b""


class _Reading(Parser):
    """Reads messages of our subscriptions many at a time, and leaves everything else to nats-py, which takes ten times as long."""

    nc: Guarded
    # The length that what is here has at least once it is whole; 0 where that is not known.
    _awaited = 0

    def reset(self) -> None:
        super().reset()
        self._awaited = 0

    async def parse(self, data: bytes = b"") -> None:
        await self.nc.may_read.wait()
        if self.state == AWAITING_CONTROL_LINE:
            if self.buf:
                self.buf += data
                if len(self.buf) < self._awaited:
                    return
                data = bytes(self.buf)
                self.buf.clear()
            messages, end, self._awaited = deliveries(data, self.nc.taken)
            if messages:
                self.nc.deliver(messages)
            data = data[end:]
            if self._awaited or not data:
                self.buf += data
                return
        await super().parse(data)


class Guarded(Client):
    """A client that no message puts out of action, and that hands over those of our subscriptions as they come.

    The parser of nats-py calls the first two methods for every message that it reads; what they raise would end its reading, and the
    connection would be deaf from then on. The third writes a ping at once, before what waits to be written: its answer would say nothing of
    that. The fourth begins a connection. The fifth ends the client for good for whatever a server says before it closes a connection, as that a
    login has expired. The sixth waits for ever until a server that reads nothing has been sent the rest of the last one.
    The seventh encrypts only where the server insists, and would send passwords in the clear where it does not.
    """

    def __init__(self, deliver: Deliver) -> None:
        super().__init__()
        self.deliver = deliver
        self.taken: dict[int, int] = {}
        self.may_read = asyncio.Event()
        self.may_read.set()
        self._ps = _Reading(self)

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        if not self.may_read.is_set():
            await self.may_read.wait()
        if not headers:
            return None
        read = _Headers()
        read.block = headers
        try:
            read.update(await super()._process_headers(headers) or {})
        except Exception:  # noqa: BLE001 - whatever it is, it is the sender's
            logging.getLogger("trunkline.cdt").debug("a header block of NATS that is none: %r", headers[:200])
        return read

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Any:
        number = self.taken.get(sid)
        if number is not None:
            block = headers.block if isinstance(headers, _Headers) else b""
            self.deliver([(number, subject, (reply, block, data))])
            return None
        try:
            return super()._build_message(sid, subject, reply, data, headers)
        except UnicodeDecodeError:
            return None

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if future is None and not self.may_read.is_set():
            # We do not read its answers: whether it reads is what the system looks at.
            self._pings_outstanding = 0
        elif future is not None:
            # Whoever waits may have given up when it comes, which would raise where the client reads.
            pong.add_done_callback(lambda _: None if future.done() else future.set_result(True))
        self._pongs.append(pong)
        await self._send_command(PING_PROTO)
        await self._flush_pending()

    async def _process_connect_init(self) -> None:
        self._set_limits()
        await super()._process_connect_init()

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
        await super()._process_info(info, initial_connection)
        server = self._current_server
        is_wanted = "tls" in self.options or (server is not None and server.uri.scheme == "tls")
        if initial_connection and is_wanted:
            if not (info.get("tls_required") or info.get("tls_available")):
                raise _Unencrypted
            info["tls_required"] = True

    @property
    def writer(self) -> asyncio.StreamWriter | None:
        """What a connection over TCP writes to."""
        writer: asyncio.StreamWriter | None = getattr(self._transport, "_io_writer", None)
        return writer

    def abort(self) -> None:
        """Ends a connection at once: nats-py waits until all is written, for ever where the server reads nothing any more."""
        if self.writer is not None:
            self.writer.transport.abort()

    def _set_limits(self) -> None:
        """Sets how much is read ahead, and has the system end a connection whose server reads nothing of what is sent."""
        reader = getattr(self._transport, "_io_reader", None)
        if reader is not None:
            reader._limit = _READ_BYTES  # noqa: SLF001 - it has no other name
        option = getattr(socket, "TCP_USER_TIMEOUT", None)
        if self.writer is not None and option is not None:
            given_ms = int(PING_S * (PINGS + 1) * 1000)
            self.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, option, given_ms)

    def write(self, pieces: list[bytes]) -> None:
        """Writes at once what nats-py would have a task do: after what waits already, and later where there is no connection."""
        self._pending.extend(pieces)
        self._pending_data_size += sum(map(len, pieces))
        if not self.is_connected:
            return
        if self.writer is None:
            assert self._flush_queue is not None
            # A WebSocket writes in a coroutine; where many tell the task that does so, it comes to this too.
            with suppress(asyncio.QueueFull):
                self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())
            return
        self.writer.writelines(self._pending)
        self._pending = []
        self._pending_data_size = 0

    @property
    def is_full(self) -> bool:
        """Whether what is written now waits for the server to read."""
        if self.writer is None:
            return False
        transport = self.writer.transport
        _, most = transport.get_write_buffer_limits()
        return transport.get_write_buffer_size() > most

    async def room(self) -> None:
        """Waits until there is room, or no connection any more."""
        await asyncio.sleep(0)
        with suppress(OSError):
            if self.writer is not None:
                await self.writer.drain()

    @property
    def spare_bytes(self) -> int:
        """For how much there is room until there is a connection again."""
        return max(0, self._max_pending_size - self._pending_data_size)
