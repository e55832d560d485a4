# SPDX-License-Identifier: Apache-2.0
"""When a connector posted its WRITE, counted from the moment its engine thread began to hand the
blocks over (the later event of the rendezvous, when D has registered before)."""
import time


def watch(connector, began):
    """Returns a list that gets the seconds of every WRITE. began() is when the engine thread
    entered the current step's start_load_kv."""
    stock = getattr(connector, "connector_worker", None)
    return _watch_stock(stock, began) if stock is not None else _watch_ours(connector, began)


def _watch_stock(worker, began):
    seconds = []
    transfer = worker.nixl_wrapper.transfer

    def timed(*arguments, **options):
        seconds.append(time.monotonic() - began())
        return transfer(*arguments, **options)

    worker.nixl_wrapper.transfer = timed
    return seconds


def _watch_ours(connector, began):
    """The engine says how long it took from taking the offer in to the post; the offer is in
    when start_step returns."""
    seconds = []
    worker = connector.worker
    start_step, take = worker.start_step, worker._take
    handed = {}

    def timed_start(step):
        start_step(step)
        for offer in step.offers:
            handed[offer.tag] = time.monotonic() - began()

    def timed_take(event):
        if event.match_ns and event.tag in handed:
            seconds.append(handed.pop(event.tag) + event.match_ns / 1e9)
        take(event)

    worker.start_step, worker._take = timed_start, timed_take
    return seconds
