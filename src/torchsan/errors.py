"""What goes wrong on our side of the line."""


class UsageError(Exception):
    """Bad input: its one sentence goes to stderr and the exit code is 2."""
