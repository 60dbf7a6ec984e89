"""On, off, and the end of a step."""

from forkpoint.guard.settings import Settings, read_settings
from forkpoint.guard.thread import GuardThread

_running: list[GuardThread] = []


def start(settings: Settings | None = None) -> None:
    """Starts the guard of this process, before or after `init_process_group`. A second start changes nothing."""
    if _running:
        return
    thread = GuardThread(settings or read_settings() or Settings())
    _running.append(thread)
    thread.start()


def stop() -> None:
    while _running:
        _running.pop().stop()


def step(number: int) -> None:
    """At the end of training step `number`, on every rank: how many calls each group has had by then is compared.

    This finds a call that was skipped among equal ones, which no recorder can show before the job ends.
    """
    thread = running_thread()
    if thread is not None and thread.session is not None:
        thread.session.side.end_step(number)


def running_thread() -> GuardThread | None:
    return _running[0] if _running else None
