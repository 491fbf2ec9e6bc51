"""What can go wrong, in words for the person at the keyboard.

    ControlPlaneError
    |- ToolchainError   Go is missing, too old or broken
    |- DiskSpaceError   not enough room to build
    |- BuildError       a download or a compilation failed
    |- BinaryError      a program that was given by path cannot be used, or none is there
    |- StartError       a process ended or did not become ready in time; names its log
    `- RequestError     the apiserver refused a request of ours

Every message says what was found, what is needed and what to do about it.
"""


class ControlPlaneError(Exception):
    """Anything that this package gives up on. `str()` of it is meant to be read by a person."""


class ToolchainError(ControlPlaneError):
    """Go is missing, too old or does not work."""


class DiskSpaceError(ControlPlaneError):
    """A file system has too little room for what is about to be built."""


class BuildError(ControlPlaneError):
    """A module could not be downloaded or a program could not be compiled."""


class BinaryError(ControlPlaneError):
    """A program given by path cannot be used, or a program is not there and was not to be built."""


class StartError(ControlPlaneError):
    """A process ended or did not become ready within its bound. The message names the log file."""


class RequestError(ControlPlaneError):
    """The apiserver answered a request with an error.

    Attributes:
        status: HTTP status of the answer.
        reason: `reason` of the Kubernetes Status object, empty when the answer had none.
    """

    def __init__(self, message: str, *, status: int, reason: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
