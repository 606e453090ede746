"""The remote end of a command that runs in a pod on behalf of a user elsewhere: ``spatialstream --attached ...``.

:mod:`spatialstream.cli.kubernetes` is the local end. The two are connected by the three standard streams alone, and
ending the local program does not end the remote one. Therefore:

- Standard input begins with a line that holds a byte count, followed by that many bytes: the command's own input.
  Anything after them, and the end of the input, interrupts the command as Ctrl-C would. So it ends when its user or
  the connection has gone.
- A file that the command writes is sent over standard output: a line that begins with :data:`MARK` and holds the
  file's name and length, then its bytes. No other line begins with it.
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
"""First byte of a line that announces a file; JSON escapes this character, and no table contains it."""


def attach(source: int = 0) -> None:
    """Read this command's input from the local end, and let the local end interrupt it from now on.

    Args:
        source: file descriptor connected to the local end.

    Raises:
        SettingError: the input was not sent by a local end.
    """
    head = b""
    while not head.endswith(b"\n") and len(head) < 20:
        if not (byte := os.read(source, 1)):
            break
        head += byte
    if not head.strip().isdigit():
        raise SettingError("attached", "is internal: --context uses it for commands that run in a pod")
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
    """Write a file on the user's machine.

    Args:
        options: the command's options.
        path: the file's path, as the user gave it.
        text: the file's content.

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
