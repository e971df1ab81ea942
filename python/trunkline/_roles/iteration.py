"""Iterating over what is received."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from trunkline.errors import ClosedError

__all__ = ["AsyncReceiving", "Receiving"]

Received_co = TypeVar("Received_co", covariant=True)


class Receiving(Generic[Received_co]):
    """An iterator over what `receive` returns, until it is closed."""

    def receive(self, *, timeout_s: float | None = None) -> Received_co:
        raise NotImplementedError

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Received_co:
        try:
            return self.receive()
        except ClosedError:
            raise StopIteration from None


class AsyncReceiving(Generic[Received_co]):
    """The same for asyncio."""

    async def receive(self, *, timeout_s: float | None = None) -> Received_co:
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received_co:
        try:
            return await self.receive()
        except ClosedError:
            raise StopAsyncIteration from None
