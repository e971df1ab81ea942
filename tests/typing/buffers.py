"""What type checkers see of buffers: whatever has the buffer protocol is sent. Not run: read by mypy and pyright."""

import array
import mmap
from pathlib import Path

import numpy as np
import numpy.typing as npt
import zmq

from trunkline import cdt, cdtp, chirp, dcp, mc0, msgpack, mtl


def sends(
    image: npt.NDArray[np.float32],
    numbers: "array.array[float]",
    mapped: mmap.mmap,
    sender: cdtp.Sender,
    client: dcp.Client,
    connector: mc0.Connector,
    writer: mtl.Writer,
    source: cdt.Source,
    target: cdt.Target,
) -> None:
    for each in (image, numbers, mapped, b"x", bytearray(1), memoryview(b"x")):
        sender.send(each)
        client.request(b"echo", each)
        connector.put("runs", each)
        writer.send(each)
        source.push("app-1", "e-1", each)
        target.put("app-1", "e-1", each)
    sender.send([image, numbers, b"x", zmq.Frame(b"y")])
    sender.send_frames([b"header", image])
    client.request(b"echo", [image], metadata=[image])
    client.submit(b"echo", (image, b"x"))
    connector.submit("runs", [image])
    sender.send(np.arange(4, dtype=np.float32))
    sender.send(image[0])
    msgpack.decode(np.zeros(1, np.uint8))
    chirp.decode(image)
    cdtp.decode([image])

    sender.send("text")  # type: ignore[arg-type]
    sender.send(1.5)  # type: ignore[arg-type]
    sender.send(Path("x"))  # type: ignore[arg-type]
    writer.send("text")  # type: ignore[arg-type]
    writer.send([image])  # type: ignore[arg-type]


async def sends_in_a_loop(
    image: npt.NDArray[np.uint16],
    sender: cdtp.AsyncSender,
    client: dcp.AsyncClient,
    connector: mc0.AsyncConnector,
    writer: mtl.AsyncWriter,
    source: cdt.AsyncSource,
    target: cdt.AsyncTarget,
) -> None:
    await sender.send(image)
    await client.request(b"echo", image)
    await connector.put("runs", image)
    await writer.send(image)
    await source.push("app-1", "e-1", image)
    await target.put("app-1", "e-1", image)


def replies(image: npt.NDArray[np.uint8], worker: dcp.Worker, request: dcp.Request) -> None:
    request.reply(image)
    request.reply([image, b"x"])
    request.forward(b"next", image)
    worker.serve(lambda _: image)
    worker.request(b"echo", image)


def makes(image: npt.NDArray[np.uint8]) -> None:
    cdtp.Message("Det", image, variant="B", sequence=1)
    mc0.Message("MESSAGE", positional=[image])
