"""What goes wrong, said so that the reader knows what was given, what is needed and what to do."""


class VaubanError(Exception):
    """Base of every error Vauban raises on purpose; the command line prints its text and exits with `exit_code`."""

    exit_code = 1


class BadInput(VaubanError, ValueError):
    """The caller gave something that cannot be used."""

    exit_code = 2


class CannotWrite(VaubanError, OSError):
    """The disk refused; what was there before is still there."""


class OutOfMemory(VaubanError):
    """A compute shape has become too large for its device; every tally before is kept."""


class MissingExtra(VaubanError, ImportError):
    """A part that is installed as an extra is needed here."""

    exit_code = 2

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'vauban[{extra}]'")


class RunRefused(VaubanError):
    """A run folder cannot be used as asked: it belongs to other settings, or somebody else is writing to it."""

    exit_code = 2


class Lie(VaubanError):
    """A run folder says something its tallies do not support."""

    exit_code = 1


class Incomplete(VaubanError):
    """A run holds fewer votes than its manifest promises; what is there has been checked."""

    exit_code = 3
