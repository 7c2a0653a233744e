"""The lock of the model goes to whoever asked first, and a guest lends it without losing it for others."""

import threading
import time

from vauban.service.turns import FairLock, Guest


def test_a_loop_that_asks_again_and_again_does_not_keep_others_out() -> None:
    lock, over, entered = FairLock(), threading.Event(), 0

    def loop() -> None:
        while not over.is_set():
            with lock:
                time.sleep(0.001)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        for _ in range(20):
            with lock:
                entered += 1
    finally:
        over.set()
        thread.join()
    assert entered == 20


def test_waiting_threads_get_the_lock_in_the_order_in_which_they_asked() -> None:
    lock, order = FairLock(), list[int]()
    lock.acquire()
    threads = []
    for number in range(5):
        thread = threading.Thread(target=lambda number=number: (lock.acquire(), order.append(number), lock.release()))
        thread.start()
        while len(lock._waiting) <= number:
            time.sleep(0.001)
        threads.append(thread)
    lock.release()
    for thread in threads:
        thread.join()
    assert order == list(range(5))


def test_a_guest_lends_the_lock_and_has_it_again() -> None:
    lock = FairLock()
    with Guest(lock) as guest:
        with guest.lent(), lock:
            assert lock._held
        assert lock._held
    assert not lock._held


def test_a_generator_that_is_closed_late_does_not_take_the_lock_again() -> None:
    lock, late = FairLock(), []

    def lending(guest: Guest):  # type: ignore[no-untyped-def]
        with guest.lent():
            yield 1

    with Guest(lock) as guest:
        late.append(lending(guest))
        next(late[0])
    late[0].close()
    assert not lock._held
