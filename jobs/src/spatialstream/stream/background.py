"""A background thread for work that no turn of a job should wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Background"]


class Background:
    """A thread that executes the latest function given to it; one that has not begun is replaced by the next one.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._next: Callable[[], object] | None = None
        self._busy = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def give(self, do: Callable[[], object]) -> None:
        """Have a function executed, without waiting for it.

        Raises:
            BaseException: what an earlier function has raised.
        """
        with self._changed:
            self._raise()
            self._next = do
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to execute, with a timeout in seconds (None: no limit); returns whether it is so.

        Raises:
            BaseException: as in :meth:`give`.
        """
        with self._changed:
            done = self._changed.wait_for(lambda: self._next is None and not self._busy, timeout)
            self._raise()
            return done

    def _raise(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next is not None)
                do, self._next, self._busy = self._next, None, True
            try:
                assert do is not None
                do()
            except BaseException as failure:  # noqa: BLE001 - raised by the next call of a method
                self._failure = failure
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
