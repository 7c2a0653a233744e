"""OpenVINO leaves no stack for signals behind: a Ctrl-C after it ended in another thread killed the process without a word."""

import subprocess
import sys

import pytest

pytest.importorskip("openvino")

SCRIPT = """
import gc, signal, threading
from vauban.engine.backends.with_openvino import OpenVINO

signal.signal(signal.SIGUSR1, lambda *_: print("handled"))
kept = [OpenVINO()]
kept[0].precisions()

def end():
    kept.clear()
    gc.collect()

thread = threading.Thread(target=end)
thread.start()
thread.join()
signal.raise_signal(signal.SIGUSR1)
print("alive")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="OpenVINO sets such a stack on Linux")
@pytest.mark.parametrize("faulthandler", [[], ["-X", "faulthandler"]], ids=["no stack before", "a stack before"])
def test_a_signal_is_handled_after_openvino_ended_in_another_thread(faulthandler: list[str]) -> None:
    done = subprocess.run([sys.executable, *faulthandler, "-c", SCRIPT], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["handled", "alive"]), done.stderr
