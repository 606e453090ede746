"""What is done beside a job's turns, so that no turn waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Background"]


class Background:
    """A thread that does the last thing that it was given; what it has not begun when more comes, it does not do.

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
        """Have something done, and do not wait for it.

        Raises:
            BaseException: what something that was given before has raised.
        """
        with self._changed:
            self._raise()
            self._next = do
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all is done, so many seconds at most (None: as long as it takes); whether it is.

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
            except BaseException as failure:  # noqa: BLE001 - it is raised where more is given
                self._failure = failure
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
