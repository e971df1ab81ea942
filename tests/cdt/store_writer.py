"""A process that shares a store with another writer, and prints what was confirmed to it: see test_store_shared."""

from __future__ import annotations

import json
import sys
import threading

from trunkline import ConfigError, cdt


def put(store, endpoint, content, **options):
    return store.put("app-1", endpoint, content, content_type="text/plain", config_id=None, **options).config


def work(store, name, count, results):
    """Puts, pulls and counts up, in turn."""
    for number in range(count):
        endpoint = f"e-{number % 3}"
        config = put(store, endpoint, f"{name} {number}".encode())
        results["put"].append((endpoint, config.config_id, config.content.decode()))
        results["seen"].append((endpoint, store.get("app-1", endpoint).config_id))
        current = store.get("app-1", "counter")
        try:
            counted = put(store, "counter", b"%d" % (int(current.content) + 1), if_current=current.config_id)
        except ConfigError as error:
            if error.status_code != 409:
                raise
            results["outrun"] += 1
        else:
            results["counted"].append((current.config_id, counted.config_id))


def main(name, path, threads, count):
    print("ready", flush=True)
    sys.stdin.readline()
    store = cdt.SqliteStore(path)
    results = [{"put": [], "seen": [], "counted": [], "outrun": 0} for _ in range(int(threads))]
    workers = [
        threading.Thread(target=work, args=(store, f"{name}-{number}", int(count), results[number]))
        for number in range(int(threads))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    store.close()
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
