# SPDX-License-Identifier: Apache-2.0
"""The exceptions of tidl.

Every one has a stable upper-case `code` (libtidl's, without prefix) and derives from `Error` and
from the built-in exception that fits. `str()` is one sentence that says what to do next.
"""

from __future__ import annotations

import builtins
from typing import ClassVar


class Error(Exception):
    """Whatever tidl itself reports.

    Attributes:
        code: stable name of what went wrong, for example `"NOT_FOUND"`.
    """

    code: ClassVar[str] = "UNKNOWN"

    def __str__(self) -> str:
        # KeyError would show the repr of its argument.
        return str(self.args[0]) if self.args else self.code


class InvalidArgumentError(Error, ValueError):
    """An argument is outside its documented range."""

    code = "INVALID_ARGUMENT"


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument has a type that cannot be used there."""


class NameInvalidError(InvalidArgumentError):
    """A name or pattern breaks the rules for names."""

    code = "NAME_INVALID"


class NotExportableError(InvalidArgumentError, BufferError):
    """The object itself refused to be shared; `__cause__` is what it said."""


class NotFoundError(Error, KeyError):
    """Nothing that the caller may see has this name."""

    code = "NOT_FOUND"


class GenerationGoneError(NotFoundError):
    """That generation is no longer published."""

    code = "GENERATION_GONE"


class ExistsError(Error, FileExistsError):
    """The name is taken and `replace=True` was not given."""

    code = "EXISTS"


class PermissionDeniedError(Error, PermissionError):
    """Owner, group and mode do not allow it."""

    code = "PERMISSION"


class TimedOutError(Error, TimeoutError):
    """The time-out passed first."""

    code = "TIMEOUT"


class WaitInterruptedError(Error, InterruptedError):
    """A signal ended the wait, and its Python handler raised nothing."""

    code = "INTERRUPTED"


class QuotaError(Error, MemoryError):
    """A quota of this user or connection would be exceeded."""

    code = "QUOTA"


class LimitError(Error, RuntimeError):
    """A fixed limit of the protocol or the broker would be exceeded."""

    code = "LIMIT"


class NoMemoryError(Error, MemoryError):
    """The system has no memory for it."""

    code = "NO_MEMORY"


class DtypeError(Error, BufferError, ValueError):
    """The data type is unknown, or the consumer does not have it."""

    code = "DTYPE"


class LayoutError(Error, BufferError, ValueError):
    """Rank, shape, strides or offset cannot be used there."""

    code = "LAYOUT"


class UnsupportedError(Error, NotImplementedError):
    """Understood, but not built in this version."""

    code = "UNSUPPORTED"


class UnsupportedTensorError(UnsupportedError, BufferError):
    """A tensor of a kind that this version does not know: of a newer DLPack, or on a device."""


class DeviceError(Error, BufferError):
    """Memory of this device cannot be shared here."""

    code = "DEVICE"


class CopyNeededError(Error, BufferError, ValueError):
    """Only a copy would do, and `copy=False` forbade it.

    Attributes:
        reason: why, in one word: "foreign", "not_owner", "private_map", "other_broker"; and of
            memory that cannot be shared in place "small", "heap", "pool", "allocator", "mapping",
            "not_writable", "hugetlb", "pinned", "guard" or "unsure" (docs/in-place.md).
    """

    code = "COPY_NEEDED"
    reason: str | None = None


class AccessError(Error, BufferError):
    """The memory was published with another access, or with one that does not allow this."""

    code = "ACCESS"


class BusyError(Error, BufferError):
    """Somebody else's hold on the memory is in the way."""

    code = "BUSY"


class CancelledError(Error):
    """The request was cancelled by its own client."""

    code = "CANCELLED"


class MetadataError(InvalidArgumentError):
    """Metadata is no JSON object of at most 4096 bytes."""

    code = "METADATA"


class DescriptorsError(Error, OSError):
    """This process is at its limit of open descriptors."""

    code = "DESCRIPTORS"


class ReadOnlyError(Error, BufferError):
    """The memory was attached for reading, and the consumer could write to it."""

    code = "READ_ONLY"


class SystemCallError(Error, OSError):
    """A system call failed in a way nobody planned for."""

    code = "SYSTEM"


class WriterGoneError(Error, EOFError):
    """Who could have made the awaited step has ended or let go of the tensor."""

    code = "WRITER_GONE"


class ReleasedError(Error, BufferError, ValueError):
    """The tensor was released."""

    code = "RELEASED"


class SegmentError(Error, RuntimeError):
    """The received memory is not what the broker announced."""

    code = "SEGMENT_BAD"


class BrokerError(Error, builtins.ConnectionError):
    """The connection is lost or was never made; tensors already mapped stay valid."""


class NoBrokerError(BrokerError, ConnectionRefusedError):
    """No broker answers."""

    code = "NO_BROKER"


class BrokerGoneError(BrokerError, ConnectionResetError):
    """The broker went away."""

    code = "BROKER_GONE"


class ClosedError(BrokerError):
    """This client was closed."""

    code = "CLOSED"


class ProtocolError(BrokerError):
    """The other side broke the protocol."""

    code = "PROTOCOL"


class VersionError(BrokerError):
    """Client and broker have no protocol version in common."""

    code = "VERSION"


class PeerRefusedError(BrokerError, PermissionError):
    """The broker does not serve this user."""

    code = "PEER_REFUSED"


class BrokerUntrustedError(BrokerError, PermissionError):
    """The socket belongs to a user that is not trusted."""

    code = "BROKER_UNTRUSTED"


class WrongSocketError(BrokerError):
    """What listens there is no tidl broker."""

    code = "WRONG_SOCKET"


class AutostartError(BrokerError):
    """A private broker could not be started."""

    code = "AUTOSTART"


class MissingFrameworkError(Error, ImportError):
    """The framework that was asked for is not installed."""

    code = "MISSING_FRAMEWORK"


#: The class that the extension raises for each of libtidl's codes.
BY_CODE: dict[str, type[Error]] = {
    error.code: error
    for error in (
        Error,
        InvalidArgumentError,
        NameInvalidError,
        NotFoundError,
        GenerationGoneError,
        ExistsError,
        PermissionDeniedError,
        TimedOutError,
        WaitInterruptedError,
        QuotaError,
        LimitError,
        NoMemoryError,
        DtypeError,
        LayoutError,
        UnsupportedError,
        DeviceError,
        CopyNeededError,
        AccessError,
        BusyError,
        CancelledError,
        MetadataError,
        DescriptorsError,
        ReadOnlyError,
        SystemCallError,
        WriterGoneError,
        ReleasedError,
        SegmentError,
        NoBrokerError,
        BrokerGoneError,
        ClosedError,
        ProtocolError,
        VersionError,
        PeerRefusedError,
        BrokerUntrustedError,
        WrongSocketError,
        AutostartError,
    )
}
