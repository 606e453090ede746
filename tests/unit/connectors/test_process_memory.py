"""How many arenas a process has, and how much memory."""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
from pathlib import Path

from spatialstream.connectors.process_memory import ARENAS, few_arenas, resident_bytes

ROOT = Path(__file__).parents[3]

_MANY_THREADS = """
import ctypes, os, sys, threading
from spatialstream.connectors.process_memory import few_arenas

if sys.argv[1] == "few":
    few_arenas()
libc, everyone = ctypes.CDLL(None), threading.Barrier(16)

def allocate():
    everyone.wait()  # an arena is another thread's if nobody has it at the moment
    libc.free(ctypes.c_void_p(libc.malloc(1000)))
    everyone.wait()

libc.malloc.restype = ctypes.c_void_p
threads = [threading.Thread(target=allocate) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.fdopen.restype = ctypes.c_void_p
out = libc.fdopen(1, b"w")
libc.malloc_info(0, ctypes.c_void_p(out))
libc.fflush(ctypes.c_void_p(out))
print(os.environ.get("MALLOC_ARENA_MAX"), file=sys.stderr)
"""


def arenas_of(how: str, **environment: str) -> tuple[int, str]:
    """How many arenas a process of many threads has, and what those that it starts are told."""
    given = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"} | environment
    run = [sys.executable, "-c", _MANY_THREADS, how]
    done = subprocess.run(run, env=given, capture_output=True, text=True, check=True)
    return len(re.findall("<heap nr=", done.stdout)), done.stderr.strip()


def test_a_process_of_many_threads_has_few_arenas() -> None:
    many, told = arenas_of("as it is")
    assert (many > ARENAS, told) == (True, "None")
    assert arenas_of("few") == (ARENAS, str(ARENAS))


def test_what_somebody_has_said_of_arenas_goes_before() -> None:
    assert arenas_of("few", MALLOC_ARENA_MAX="4") == (4, "4")


def test_the_environment_is_told_once() -> None:
    given = {"MALLOC_ARENA_MAX": "7"}
    few_arenas(given)
    assert given == {"MALLOC_ARENA_MAX": "7"}


def test_the_images_say_the_same() -> None:
    images = sorted((ROOT / "images").glob("*/Dockerfile"))
    assert images
    for image in images:
        last = image.read_text().rpartition("\nFROM ")[2]
        assert re.findall(r"\bMALLOC_ARENA_MAX=(\d+)", last) == [str(ARENAS)], image


def test_the_memory_of_a_process() -> None:
    before, size = resident_bytes(), 50_000_000
    with mmap.mmap(-1, size) as held:  # pages of its own: an allocator may have room that is resident already
        for at in range(0, size, mmap.PAGESIZE):
            held[at] = 1
        assert resident_bytes() >= before + size // 2
        assert resident_bytes(os.getpid()) > before
    assert resident_bytes(2**31 - 1) == 0


_FRAGMENTED = """
import time
from spatialstream.connectors.process_memory import few_arenas, free_pages_released, resident_bytes
few_arenas()
blocks = [bytes(2_000) for _ in range(50_000)]
kept = blocks[::50]
del blocks
before = resident_bytes()
with free_pages_released(0.01):
    while before - resident_bytes() < 60_000_000:
        time.sleep(0.01)
"""


def test_free_pages_between_others_are_returned() -> None:
    """The C library returns only the end of a heap on its own."""
    subprocess.run([sys.executable, "-c", _FRAGMENTED], check=True, timeout=60)
