"""Has a run of tests end although one of them hangs: a plugin of pytest."""

import faulthandler

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

# How long a test may go on that its time limit has not ended: the limit is an exception, which may not get through.
GRACE_S = 60


def end_in_time(item):
    """Ends this process with the stacks of its threads, should the test not end; pytest-xdist then says which it was."""
    limit = item.get_closest_marker("timeout")
    limit_s = float(item.config.getini("timeout")) if limit is None else limit.args[0]
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(limit_s + GRACE_S, exit=True, file=stderr)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    end_in_time(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item):
    # A failure makes others cancel what is theirs, and this with it.
    end_in_time(item)
