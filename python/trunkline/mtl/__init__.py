"""MTL: queues behind logins, with commands in JSON and contents sent and received under leases (11/MTL)."""

from __future__ import annotations

from trunkline._native.mtl import Command, Content, Message, Reply, decode, decode_table, encode, encode_table
from trunkline._native.mtl import _restore as _restore
from trunkline.mtl.client import AsyncClient, Client, ClientStats
from trunkline.mtl.flows import AsyncReader, AsyncWriter, FlowStats, Reader, Writer
from trunkline.mtl.profiles import Profile, Session
from trunkline.mtl.server import AsyncServer, ResourceStats, Server, ServerStats

__all__ = [
    "AsyncClient",
    "AsyncReader",
    "AsyncServer",
    "AsyncWriter",
    "Client",
    "ClientStats",
    "Command",
    "Content",
    "FlowStats",
    "Message",
    "Profile",
    "Reader",
    "Reply",
    "ResourceStats",
    "Server",
    "ServerStats",
    "Session",
    "Writer",
    "decode",
    "decode_table",
    "encode",
    "encode_table",
]
__dir__ = __all__.copy
