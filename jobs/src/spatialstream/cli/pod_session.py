"""The far end of a command that runs inside a pod for somebody who sits elsewhere: ``spatialstream --attached ...``.

:mod:`spatialstream.cli.kubernetes` is the near end. Between the two are nothing but the three standard streams, and
ending a program on this side of them does not end the one on the other. Therefore:

- Standard input begins with a line that holds a number, and so many bytes: what the command reads. Whatever comes after
  them, and the end of the input just so, interrupts the command as Ctrl-C would. So it ends when its user, or the
  connection, has gone.
- A file that the command writes goes to standard output: a line that begins with :data:`MARK` and says how the file is
  called and how long it is, then its bytes. No other line begins so.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
import threading
from pathlib import Path

from spatialstream.model.errors import SettingError

__all__ = ["MARK", "attach", "write_file", "write_here"]

MARK = b"\x1e"
"""What a line before a file begins with; JSON escapes this character, and no table has it."""


def attach(source: int = 0) -> None:
    """Take this command's input from the near end, and be interrupted by it from now on.

    Args:
        source: file descriptor of the near end.

    Raises:
        SettingError: what comes is not from a near end.
    """
    head = b""
    while not head.endswith(b"\n") and len(head) < 20:
        if not (byte := os.read(source, 1)):
            break
        head += byte
    if not head.strip().isdigit():
        raise SettingError("attached", "is for commands that --context runs in a pod, not for people")
    left = int(head)
    parts = []
    while left and (part := os.read(source, min(left, 1 << 16))):
        parts.append(part)
        left -= len(part)
    sys.stdin = io.StringIO(b"".join(parts).decode())
    threading.Thread(target=_listen, args=(source,), daemon=True).start()


def _listen(source: int) -> None:
    while True:
        more = os.read(source, 1)
        os.kill(os.getpid(), signal.SIGINT)
        if not more:
            return


def write_file(options: argparse.Namespace, path: Path, text: str) -> None:
    """Write a file where the user sits.

    Args:
        options: of the command.
        path: the file, as the user calls it.
        text: what it is to hold.

    Raises:
        SettingError: it cannot be written.
    """
    content = text.encode()
    if getattr(options, "attached", False):
        sys.stdout.flush()
        head = json.dumps({"file": str(path), "bytes": len(content)}).encode()
        sys.stdout.buffer.write(MARK + head + b"\n" + content)
        sys.stdout.buffer.flush()
        return
    write_here(path, content)


def write_here(path: Path, content: bytes) -> None:
    """Write a file on this machine; errors as for :func:`write_file`."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise SettingError("file", f"{path} cannot be written: {error.strerror}") from None
