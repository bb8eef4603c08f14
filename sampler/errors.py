"""The errors a user sees. Each message is one line: the thing, its value and the remedy."""


class FastrlError(Exception):
    """Base class of every error that fastrl raises on purpose."""

    traceback_text: str = ""
    """Traceback from the process in which the error happened, if that was another one."""


RAISED = (Exception, SystemExit)
"""What to catch around an environment's code: its sys.exit must not end the caller's process."""

LINE_CHARACTERS = 600


def one_line(error: BaseException) -> str:
    """An error's message, shortened if it is long, with the error's type unless it is one of
    ours."""
    message = " ".join(str(error).split())
    message = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in message)
    line = message if isinstance(error, FastrlError) else f"{type(error).__name__}: {message}"
    return line if len(line) <= LINE_CHARACTERS else line[: LINE_CHARACTERS - 3] + "..."


class ConfigError(FastrlError, ValueError):
    """A setting, an id or a combination of settings that cannot work (exit code 2)."""


class EnvError(FastrlError, RuntimeError):
    """An environment raised, hung, died or broke its own spaces (exit code 1)."""


class ModelError(FastrlError, RuntimeError):
    """A model returned NaN, from which no action can be chosen (exit code 1)."""


class WorkerError(FastrlError, RuntimeError):
    """A rollout or policy worker failed more often than `max_restarts` allows (exit code 1)."""


class StateError(FastrlError, RuntimeError):
    """A saved state of a sampler cannot be restored; start without it."""


class BatchTimeout(FastrlError, TimeoutError):
    """No batch was finished within the timeout given to `Sampler.get_batch`."""


class ReleasedBatchError(FastrlError, RuntimeError):
    """A batch was used after its rows had been released to the sampler."""
