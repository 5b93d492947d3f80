"""Handle Ctrl-C as a request to stop, so that the current work can finish cleanly."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interruptible(on_wish: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a request to stop. The second one stops at once."""
    wish = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = signal.getsignal(signal.SIGINT)

    def first(*_: object) -> None:
        wish.set()
        on_wish()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, first)
    try:
        yield wish
    finally:
        signal.signal(signal.SIGINT, before)
