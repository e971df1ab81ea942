"""Test a system without sockets, under a clock that you move: what happens to work when a worker crashes.

python examples/simulated.py
"""

from trunkline import dcp, testing


def upper(request: dcp.Request) -> list[bytes]:
    """The handler under test."""
    return [bytes(part).upper() for part in request.data]


def main() -> None:
    """A worker dies with a request in hand, and the broker gives it to the other."""
    with testing.pair(dcp.Client, latency_s=0.01, seed=7) as sim:
        sim.add(dcp.Broker, requeue=True)
        first, second = (sim.add(dcp.Worker, b"upper", upper, work_s=5) for _ in range(2))
        future = sim.client.submit(b"upper", b"hello")
        sim.advance(1)
        sim.crash(first)
        print(*future.result().data, f"after {sim.now_s:.2f} simulated seconds")
        print(second.stats.replies, "reply by the second worker")


if __name__ == "__main__":
    main()
