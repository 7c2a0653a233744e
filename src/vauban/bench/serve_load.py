"""Clients of a service under load, in a process of their own: python -m vauban.bench.serve_load URL CLIENTS VOTES SECONDS SPREAD
INPUTS, where INPUTS is a file of numpy.save with one input for each client.

Prints a JSON list for each finished request: when it began, the seconds to its first radius (null if it got none) and to its end,
and the processor seconds that this process has used by then.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import numpy as np

from vauban.client import Client, ServiceError


def main(url: str, clients: int, votes: int, seconds: float, spread: float, inputs: str) -> None:
    """Let clients ask, one request after the other, until `seconds` have passed; they begin within `spread` seconds."""
    began, printing, pictures = time.monotonic(), threading.Lock(), np.load(inputs)

    def ask(number: int) -> None:
        client = Client(url, timeout=300)
        x, longest = pictures[number % len(pictures)], client.about()["limits"]["seconds"]
        time.sleep(spread * number / clients)
        while time.monotonic() - began < seconds:
            start, first = time.monotonic(), None
            try:
                for name, content in client.events(x, votes=votes, seconds=longest):
                    if first is None and name == "radius" and content["radius"] is not None:
                        first = time.monotonic() - start
            except ServiceError as problem:
                print(problem, file=sys.stderr)
                return
            with printing:
                print(json.dumps([start - began, first, time.monotonic() - start, time.process_time()]), flush=True)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]), sys.argv[6])
