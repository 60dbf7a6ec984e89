"""Keep long runs alive."""
import functools
import logging

log = logging.getLogger("tolerance")


def tolerant(*kinds, budget=10):
    """Count and swallow the given errors until the budget is used up."""

    def wrap(function):
        failures = 0

        @functools.wraps(function)
        def inner(*args, **kwargs):
            nonlocal failures
            try:
                return function(*args, **kwargs)
            except kinds as error:
                failures += 1
                if failures > budget:
                    raise
                log.debug("%s: %s", function.__name__, error)
                return None

        return inner

    return wrap
