"""How a command ends that is told to while it has nothing to finish."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest

from spatialstream.cli import main


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_only_waits_is_interrupted(how: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30.0)
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "spatialstream", "tree", "--stream", "s", "--zookeeper", where]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            connected, _ = silent.accept()
            process.send_signal(how)
            connected.close()
            told = process.communicate(timeout=60.0)[1]
    # a shell says 130 for both; Python ends by the signal if it was in the middle of exec(), as imports are
    assert (process.returncode, told) in [(how, "spatialstream: interrupted\n") for how in (130, -signal.SIGINT)]


_FINALIZED = """
import signal, sys, threading
from spatialstream import cli
from spatialstream.cli import tree

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.Signals(int(sys.argv[1])))

def waits(options):
    Finalized()
    return int(threading.Event().wait(30.0)) + 7

tree._tree = waits
sys.exit(cli.main(["tree"]))
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupt_is_not_lost_in_a_finalizer(how: signal.Signals) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FINALIZED, str(int(how))], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (130, "spatialstream: interrupted\n")


def test_the_command_tells_of_an_option_that_it_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["tree", "--sorts", "5"])
    told = "spatialstream tree: unrecognized arguments: --sorts 5; see spatialstream tree --help"
    assert told in capsys.readouterr().err
