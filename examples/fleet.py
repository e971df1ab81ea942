"""Configure a fleet of devices, and see which of them has which configuration: CDT.

pip install '.[nats]'
python examples/fleet.py
"""

import json
import threading

from trunkline import cdt

SERVERS = "memory://fleet"  # a NATS inside the process; nats://127.0.0.1:4222 is a real one


def device(source: cdt.Source, name: str, ready: threading.Barrier) -> None:
    """A device applies each configuration that it is given, until it is told to stop."""
    with source.watch("app-1", name) as watch:
        ready.wait()
        for configuration in watch:
            settings = json.loads(configuration.content)
            source.report_applied("app-1", name, configuration.config_id)
            if settings["stop"]:
                return


def main() -> None:
    """Three devices, two configurations each."""
    names = [f"device-{number}" for number in range(3)]
    with (
        cdt.Target("configs", servers=SERVERS, store=":memory:") as target,
        cdt.Source("gateway", target="configs", servers=SERVERS) as source,
    ):
        ready = threading.Barrier(len(names) + 1)
        devices = [threading.Thread(target=device, args=(source, name, ready)) for name in names]
        for thread in devices:
            thread.start()
        ready.wait()
        for name in names:
            source.push(
                "app-1", name, json.dumps({"interval": 5, "stop": False}).encode(), confirm="applied", timeout_s=10
            )
            source.push(
                "app-1", name, json.dumps({"interval": 1, "stop": True}).encode(), confirm="applied", timeout_s=10
            )
        for thread in devices:
            thread.join()
        for name in names:
            first, second = target.history("app-1", name)
            print(name, "had", first.config_id[:8], "and has", second.config_id[:8])


if __name__ == "__main__":
    main()
