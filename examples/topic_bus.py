"""A topic bus where every client has a key and a policy says who may publish: mc0 over CURVE.

python examples/topic_bus.py
"""

import logging
import tempfile
from pathlib import Path

import zmq

from trunkline import Curve, MiddlewareError, mc0

POLICY = """
[[allow]]
client = "daq"
publish = ["runs.*"]

[[allow]]
client = "*"
subscribe = ["runs.*"]
"""


def main() -> None:
    """One publishes, one listens, and who may not publish is told so."""
    # The middleware warns of what it refuses: here that is on purpose.
    logging.getLogger("trunkline.mc0").setLevel(logging.ERROR)
    server = zmq.curve_keypair()
    keys = {name: zmq.curve_keypair() for name in ("daq", "operator")}
    with tempfile.TemporaryDirectory() as directory:
        # The allow-list is a folder with a file for each public key; the policy knows clients by these names.
        allowed = Path(directory, "allowed")
        allowed.mkdir()
        for name, (public, _) in keys.items():
            (allowed / f"{name}.key").write_bytes(public)
        policy = Path(directory, "policy.toml")
        policy.write_text(POLICY)

        def connector(name: str, bus: mc0.Middleware) -> mc0.Connector:
            return mc0.Connector(connect=bus.endpoints, curve=Curve(keys[name], server_key=server[0]))

        with (
            mc0.Middleware(bind="tcp://127.0.0.1:*", curve=Curve(server, allow=allowed), policy=policy) as bus,
            connector("operator", bus) as operator,
            connector("daq", bus) as daq,
        ):
            operator.subscribe("runs.1", timeout_s=10)
            daq.put("runs.1", b"run 1 begins", headers={"X-Shift": "night"}, confirm=True, timeout_s=10)
            message = operator.receive(timeout_s=10)
            print(message.topic, *message.body)
            try:
                operator.put("runs.1", b"I may not", confirm=True, timeout_s=10)
            except MiddlewareError as error:
                print("refused:", error)


if __name__ == "__main__":
    main()
