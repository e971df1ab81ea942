"""A service with a broker, two workers and a client with many requests in flight: DCP.

python examples/service.py
"""

import threading
from concurrent.futures import as_completed

from trunkline import dcp


def is_prime(request: dcp.Request) -> list[bytes]:
    """The handler of the service: takes a number, answers yes or no."""
    number = int(request.data[0])
    prime = number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))
    return [b"yes" if prime else b"no"]


def main() -> None:
    """Asks for a thousand numbers at once."""
    with dcp.Broker(bind="tcp://127.0.0.1:*") as broker:
        workers = [dcp.Worker(b"is-prime", connect=broker.endpoints, concurrency=2) for _ in range(2)]
        threads = [threading.Thread(target=worker.serve, args=(is_prime,)) for worker in workers]
        for thread in threads:
            thread.start()

        with dcp.Client(connect=broker.endpoints) as client:
            futures = {client.submit(b"is-prime", [b"%d" % number]): number for number in range(1000)}
            primes = [
                futures[future] for future in as_completed(futures, timeout=30) if future.result().data == (b"yes",)
            ]
            print(len(primes), "primes below 1000, the largest is", max(primes))

        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join()
        print(sum(worker.stats.replies for worker in workers), "replies by", len(workers), "workers")


if __name__ == "__main__":
    main()
