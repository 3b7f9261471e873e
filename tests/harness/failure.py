"""What went wrong outside of a test's own assertions."""


class CommandFailed(AssertionError):
    """A command that had to succeed did not."""
