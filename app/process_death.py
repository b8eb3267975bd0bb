"""Children that do not outlive the process that started them."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable


def die_with_parent(death_signal: signal.Signals) -> Callable[[], None]:
    """Return what a child runs before its program starts: on Linux it asks for a signal at the death of the thread that started it.

    It runs after the change of account, which would take the request back (prctl(2), PR_SET_PDEATHSIG).
    """
    if sys.platform != "linux":
        return lambda: None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(1, int(death_signal))
        if os.getppid() != parent:  # it died before it could be asked about
            os._exit(1)

    return ask
