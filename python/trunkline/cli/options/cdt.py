"""Options that the commands of CDT share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from trunkline._tls import Tls
from trunkline.cli.options.shared import (
    Codec,
    encodable,
)

__all__ = [
    "App",
    "ConfigId",
    "Confirm",
    "Confirming",
    "Endpoint",
    "Name",
    "Nats",
    "StoreFile",
    "TargetName",
    "Timeout",
]


class Confirm(StrEnum):
    """What a push waits for."""

    NONE = "none"
    STORED = "stored"
    APPLIED = "applied"


def _from_environment() -> list[str]:
    """The servers of NATS_URL, which other clients separate by commas."""
    return [url.strip() for url in os.environ.get("NATS_URL", "").split(",") if url.strip()]


@dataclass(frozen=True)
class Nats:
    """The NATS servers, and the credentials for them."""

    nats: Annotated[
        list[str] | None,
        typer.Option(
            "--nats",
            metavar="URL",
            help="The NATS server. Repeatable, for a cluster. [default: $NATS_URL, or nats://127.0.0.1:4222]",
            callback=encodable,
        ),
    ] = None
    creds: Annotated[
        Path | None, typer.Option("--creds", metavar="FILE", help="A NATS credentials file.", dir_okay=False)
    ] = None
    nkey: Annotated[
        Path | None,
        typer.Option(
            "--nkey", metavar="FILE", help="Read the nkey seed from the first line of this file.", dir_okay=False
        ),
    ] = None
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            "--tls-ca", metavar="FILE", help="Use TLS, and trust these certificate authorities.", dir_okay=False
        ),
    ] = None
    codec: Annotated[Codec, typer.Option("--codec", help="The encoding of bodies.")] = Codec.JSON

    def keywords(self) -> dict[str, Any]:
        """The arguments of roles."""
        tls = None
        if self.tls_ca is not None:
            # That it cannot be read is an error of the system.
            self.tls_ca.open("rb").close()
            tls = Tls(ca=self.tls_ca)
        seed = None
        if self.nkey is not None:
            seed = self.nkey.read_bytes().partition(b"\n")[0].strip().decode(errors="replace")
        return {
            "servers": self.nats or _from_environment() or "nats://127.0.0.1:4222",
            "credentials": self.creds,
            "nkey_seed": seed,
            "tls": tls,
            "codec": self.codec.value,
        }


App = Annotated[str, typer.Argument(metavar="APP", help="The version of the application.", callback=encodable)]
Endpoint = Annotated[str, typer.Argument(metavar="ENDPOINT", help="The id of the endpoint.", callback=encodable)]
ConfigId = Annotated[str, typer.Argument(metavar="CONFIG_ID", help="The id of the configuration.", callback=encodable)]
TargetName = Annotated[
    str, typer.Option("--target", metavar="NAME", help="The service that stores configurations.", callback=encodable)
]
Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="The service name of this client.", callback=encodable)
]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.001, metavar="S", help="How long to wait for the answer of a target.")
]
StoreFile = Annotated[Path, typer.Option("--store", metavar="FILE", help="The store file of a target.", dir_okay=False)]
Confirming = Annotated[Confirm, typer.Option("--confirm", help="What to wait for.")]
