"""The store in JetStream's key-value store, which replicas of a target on several machines share."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trunkline.cdt._client import connected, ended
from trunkline.cdt._opening import without_credentials
from trunkline.cdt.store import (
    Assignment,
    Config,
    Rollout,
    Stored,
    conflict,
    content_id,
    missing,
    now_ms,
    outdated,
)
from trunkline.errors import ConfigError, LocalProtocolError, PeerLostError

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js.kv import KeyValue

__all__ = ["JetStreamStore"]

# The most revisions of a key that JetStream keeps.
_HISTORY = 64

# Bytes of configurations, which never change, cached in memory.
_CACHE_BYTES = 64 << 20

# The longest key, so that its subject fits into a line of the protocol.
_KEY_BYTES = 3_500

# The characters of a bucket's name.
_BUCKET = re.compile(r"[A-Za-z0-9_-]+")

# How long a list may take.
_LIST_S = 5.0

# How often to retry when another replica was faster.
_TRIES = 20

# The error code for a key that has changed since it was read.
_WRONG_LAST_SEQUENCE = 10071


def _token(text: str) -> str:
    """A text of any characters, encoded as one token of a key."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _text(token: str) -> str:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


def _key(*texts: str) -> str:
    key = ".".join(map(_token, texts))
    if len(key) > _KEY_BYTES:
        message = "names are too long for a key of JetStream"
        raise ConfigError(400, message)
    return key


def bucket_prefix(name: str) -> str:
    """The prefix of the names of the buckets of a target, so that each target has its own."""
    return f"cdt_{name if _BUCKET.fullmatch(name) else _token(name)}"


class JetStreamStore:
    """A store in JetStream, which survives its target, and which replicas on several machines share.

    Four buckets hold configurations by their id, the assignment of each endpoint (with a history of 64, JetStream's limit), its
    reports, and pending announcements. The assignment is read at each pull, as another replica may have changed it; a
    configuration never changes, and is read once.

    Args:
        options: The servers and the login, as a role has them.
        connect_s: How long connecting may take.
        prefix: The prefix of the names of its buckets.
    """

    def __init__(self, options: Mapping[str, Any], connect_s: float, *, prefix: str = "cdt") -> None:
        self._options = options
        self._connect_s = connect_s
        self._client: Client | None = None
        self._prefix = prefix
        self._cache: OrderedDict[tuple[str, str, str], Config] = OrderedDict()
        self._cached_bytes = 0
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Connects, and creates missing buckets.

        Raises:
            PeerLostError: No server answers, or it has no JetStream.
            AuthenticationError: The server refuses the login.
            LocalProtocolError: The server is in this process, and has no JetStream.
        """
        import nats.errors
        import nats.js.errors

        if self._options["servers"][0].startswith("memory://"):
            message = "store='jetstream' needs a NATS server: a memory:// one has no JetStream"
            raise LocalProtocolError(message)
        self._client = await connected(self._options, self._connect_s)
        stream = self._client.jetstream()
        try:
            self._configs, self._current, self._applied, self._owed = [
                await stream.create_key_value(bucket=f"{self._prefix}_{name}", history=history)
                for name, history in (("configs", 1), ("current", _HISTORY), ("applied", 1), ("owed", 1))
            ]
        except (nats.js.errors.Error, nats.js.errors.APIError, nats.errors.Error) as error:
            await self.close()
            where = ", ".join(map(without_credentials, self._options["servers"]))
            message = f"{where}: JetStream, which is to store the configurations, is not available: {error}"
            raise PeerLostError(message) from error

    async def _ready(self) -> None:
        """Connects again where a server has ended the connection for good, as at the expiry of a login."""
        async with self._opening:
            if self._client is None or self._client.is_closed:
                await self.open()

    async def put(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: bytes,
        *,
        content_type: str,
        config_id: str | None,
        if_current: str | None = None,
    ) -> Stored:
        """See `Store.put`."""
        await self._ready()
        from nats.js.errors import KeyWrongLastSequenceError

        config = Config(config_id or content_id(content_type, content), content_type, content)
        revision = None
        if if_current is not None:
            current, revision = await self._look(app_version_name, endpoint_id)
            if current != if_current:
                raise outdated(if_current, current)
        is_new = True
        try:
            await self._configs.create(_key(app_version_name, endpoint_id, config.config_id), _packed(config))
        except KeyWrongLastSequenceError:
            is_new = False
            if await self.get(app_version_name, endpoint_id, config.config_id) != config:
                raise conflict(config.config_id) from None
        self._remember(app_version_name, endpoint_id, config)
        await self._assign(app_version_name, endpoint_id, config, revision, if_current)
        return Stored(config, is_new)

    async def _look(self, app: str, endpoint: str) -> tuple[str | None, int]:
        """The assignment of an endpoint, and its revision."""
        from nats.js.errors import KeyNotFoundError

        try:
            entry = await self._current.get(_key(app, endpoint))
        except KeyNotFoundError:
            return None, 0
        return str(json.loads(entry.value or b"{}")["config_id"]), int(entry.revision or 0)

    async def _assign(
        self, app: str, endpoint: str, config: Config, revision: int | None, if_current: str | None
    ) -> None:
        """Assigns a configuration to an endpoint; if a revision is given, only if that is still the latest."""
        from nats.js.errors import KeyWrongLastSequenceError

        key = _key(app, endpoint)
        # Marked as pending first: an announcement too many does no harm.
        await self._owed.put(key, config.config_id.encode())
        row = {
            "config_id": config.config_id,
            "content_type": config.content_type,
            "content_bytes": len(config.content),
            "since_ms": now_ms(),
        }
        for _ in range(_TRIES):
            current, last = await self._look(app, endpoint)
            if revision is not None and last != revision:
                raise outdated(if_current or "", current)
            if current == config.config_id:
                return
            try:
                await self._current.update(key, json.dumps(row).encode(), last=last)
            except KeyWrongLastSequenceError:
                continue
            return
        raise ConfigError(409, "too many put at the same time")

    async def get(self, app_version_name: str, endpoint_id: str, config_id: str | None = None) -> Config | None:
        """See `Store.get`."""
        await self._ready()
        from nats.js.errors import KeyNotFoundError

        if config_id is None:
            config_id, _ = await self._look(app_version_name, endpoint_id)
            if config_id is None:
                return None
        key = (app_version_name, endpoint_id, config_id)
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        try:
            entry = await self._configs.get(_key(*key))
        except KeyNotFoundError:
            return None
        config = _unpacked(config_id, entry.value or b"")
        self._remember(app_version_name, endpoint_id, config)
        return config

    def _remember(self, app: str, endpoint: str, config: Config) -> None:
        key = (app, endpoint, config.config_id)
        if key not in self._cache:
            self._cache[key] = config
            self._cached_bytes += len(config.content)
            while self._cached_bytes > _CACHE_BYTES:
                _, oldest = self._cache.popitem(last=False)
                self._cached_bytes -= len(oldest.content)

    async def rollback(self, app_version_name: str, endpoint_id: str, config_id: str) -> Config:
        """See `Store.rollback`."""
        await self._ready()
        config = await self.get(app_version_name, endpoint_id, config_id)
        if config is None:
            raise missing(config_id)
        await self._assign(app_version_name, endpoint_id, config, None, None)
        return config

    async def history(self, app_version_name: str, endpoint_id: str) -> Sequence[Assignment]:
        """See `Store.history`; the last 64."""
        await self._ready()
        entries = await _all(self._current, _key(app_version_name, endpoint_id), history=True)
        return [Assignment(**json.loads(value)) for _, value in entries]

    async def rollout(self, app_version_name: str) -> Sequence[Rollout]:
        """See `Store.rollout`."""
        await self._ready()
        pattern = f"{_token(app_version_name)}.*"
        current, applied = await asyncio.gather(_all(self._current, pattern), _all(self._applied, pattern))
        reports = {key: json.loads(value) for key, value in applied}
        rows = []
        for key, value in current:
            row = json.loads(value)
            has = reports.get(key, {"config_id": None, "at_ms": row["since_ms"]})
            rows.append(Rollout(_text(key.rpartition(".")[2]), row["config_id"], has["config_id"], has["at_ms"]))
        return sorted(rows, key=lambda row: row.endpoint_id)

    async def applied(self, reports: Sequence[tuple[str, str, str, int]]) -> None:
        """See `Store.applied`."""
        await self._ready()
        for app, endpoint, config_id, timestamp_ms in reports:
            if await self.get(app, endpoint, config_id) is not None:
                value = json.dumps({"config_id": config_id, "at_ms": timestamp_ms}).encode()
                await self._applied.put(_key(app, endpoint), value)

    async def owed(self) -> Sequence[tuple[str, str, str]]:
        """See `Store.owed`."""
        await self._ready()
        found = []
        for key, value in await _all(self._owed, ">"):
            app, endpoint = map(_text, key.split("."))
            found.append((app, endpoint, value.decode()))
        return found

    async def announced(self, sent: Sequence[tuple[str, str, str]]) -> None:
        """See `Store.announced`."""
        await self._ready()
        from nats.js.errors import BadRequestError, KeyNotFoundError, KeyWrongLastSequenceError

        for app, endpoint, config_id in sent:
            key = _key(app, endpoint)
            try:
                entry = await self._owed.get(key)
                if entry.value == config_id.encode():
                    await self._owed.delete(key, last=entry.revision)
            except (KeyNotFoundError, KeyWrongLastSequenceError):
                # Another target has announced it, or a newer one is pending.
                continue
            except BadRequestError as error:
                # For a deleted key the error is of another class.
                if error.err_code != _WRONG_LAST_SEQUENCE:
                    raise

    async def count(self) -> int:
        """See `Store.count`."""
        await self._ready()
        return int((await self._configs.status()).values)

    async def close(self) -> None:
        """See `Store.close`."""
        client, self._client = self._client, None
        if client is not None:
            await ended(client)


def _packed(config: Config) -> bytes:
    """Type and content in one value: the length of the type, then both."""
    content_type = config.content_type.encode()
    return len(content_type).to_bytes(4, "big") + content_type + config.content


def _unpacked(config_id: str, value: bytes) -> Config:
    end = 4 + int.from_bytes(value[:4], "big")
    return Config(config_id, value[4:end].decode(), value[end:])


async def _all(bucket: KeyValue, pattern: str, *, history: bool = False) -> list[tuple[str, bytes]]:
    """The keys that match a pattern, with their current values or all values they had."""
    watcher = await bucket.watch(pattern, include_history=history)
    found = []
    try:
        async with asyncio.timeout(_LIST_S):
            async for entry in watcher:
                # None marks the end of existing values.
                if entry is None:
                    break
                if entry.operation is None and entry.value is not None:
                    found.append((entry.key, entry.value))
    except TimeoutError:
        message = "JetStream: no answer"
        raise PeerLostError(message) from None
    finally:
        await watcher.stop()  # type: ignore[no-untyped-call] # nats-py has no type for it
    return found
