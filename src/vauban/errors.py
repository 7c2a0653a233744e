"""Vauban's exceptions; each message says what was given, what is needed and what to do."""


class VaubanError(Exception):
    """Base of every error Vauban raises on purpose; the command line prints its text and exits with `exit_code`."""

    exit_code = 1


class BadInput(VaubanError, ValueError):
    """The caller gave something that cannot be used."""

    exit_code = 2


class RowsDiffer(BadInput):
    """Scores depend on the row of a batch, by rounding, in a compute shape where a method needs that they do not."""


class NoGradients(BadInput):
    """A gradient was asked of a base classifier through which none passes."""


class CannotWrite(VaubanError, OSError):
    """A write failed; the previous content is unchanged."""


class NotSaved(CannotWrite):
    """A training ended, or was stopped, and what it learned cannot be written; `result` is what it would have returned."""

    def __init__(self, text: str, result: object):
        super().__init__(text)
        self.result = result


class OutOfMemory(VaubanError):
    """A compute shape no longer fits into its device's memory; every tally before it is kept."""


class MissingExtra(VaubanError, ImportError):
    """An optional dependency is not installed; the message names the extra that installs it."""

    exit_code = 2

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'vauban[{extra}]'")


def needs_torch(problem: ImportError, purpose: str) -> MissingExtra | None:
    """The error for an import that failed because torch is not installed; None where something else is missing."""
    missing = (problem.name or "").partition(".")[0]
    return MissingExtra(missing, "torch", purpose) if missing in ("torch", "safetensors") else None


class ModelFailed(VaubanError):
    """A base classifier raised an error, or tried to end the process, when it was built or called."""

    exit_code = 2


class NotRepeated(VaubanError):
    """A base classifier failed once and not again: its votes are no function of its samples, and nothing can be certified."""


class KeepsState(NotRepeated):
    """A part that is trained again votes otherwise: the learner keeps something of other parts, or random numbers differ."""


class RunRefused(VaubanError):
    """A run folder cannot be used: it belongs to other settings, or another process is writing to it."""

    exit_code = 2


class Lie(VaubanError):
    """A run folder is damaged or altered, or claims more than its votes prove."""

    exit_code = 1


class Incomplete(VaubanError):
    """A run holds fewer votes than its manifest requires; those it holds have been checked."""

    exit_code = 3
