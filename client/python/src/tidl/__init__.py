# SPDX-License-Identifier: Apache-2.0
"""Hand a tensor to any other process on this machine, and to any framework, without a copy.

    import tidl, torch

    with tidl.connect() as client:
        x = client.empty((8, 4), dtype="float32")  # in shared memory
        t = torch.from_dlpack(x)                   # the same memory
        client.publish("demo/x", t)                # recognised: no copy

    with tidl.connect() as client:                 # another process
        y = client.get("demo/x", access="write", timeout=5).to_numpy()

Frameworks are imported only when a `to_...()` method asks for them.
"""

from tidl import _guard as _guard  # first: refuses Pythons that the extension cannot serve
from tidl import taichi as taichi  # the package of that name here; it imports no framework
from tidl._bundle import Bundle, FlatBundle, join_key, split_key
from tidl._client import Client, connect
from tidl._core import NumpyAllocator, Update, __version__
from tidl._dlpack import ForeignTensor, from_dlpack, to_dlpack
from tidl._errors import (
    AccessError,
    ArgumentTypeError,
    AutostartError,
    BrokerError,
    BrokerGoneError,
    BrokerUntrustedError,
    BusyError,
    CancelledError,
    ClosedError,
    CopyNeededError,
    DescriptorsError,
    DeviceError,
    DtypeError,
    Error,
    ExistsError,
    GenerationGoneError,
    InvalidArgumentError,
    LayoutError,
    LimitError,
    MetadataError,
    MissingFrameworkError,
    NameInvalidError,
    NoBrokerError,
    NoMemoryError,
    NotExportableError,
    NotFoundError,
    PeerRefusedError,
    PermissionDeniedError,
    ProtocolError,
    QuotaError,
    ReadOnlyError,
    ReleasedError,
    SegmentError,
    SystemCallError,
    TimedOutError,
    UnsupportedError,
    UnsupportedTensorError,
    VersionError,
    WaitInterruptedError,
    WriterGoneError,
    WrongSocketError,
)
from tidl._inplace import prefer_shareable
from tidl._numpy_memory import numpy_allocator
from tidl._records import (
    Broker,
    Holder,
    Inspection,
    ListEntry,
    Process,
    Publication,
    Segment,
    TensorInfo,
)
from tidl._steps import Turns
from tidl._tensor import Tensor
from tidl._watch import Event, Watch

__all__ = [
    "AccessError",
    "ArgumentTypeError",
    "AutostartError",
    "Broker",
    "BrokerError",
    "BrokerGoneError",
    "BrokerUntrustedError",
    "Bundle",
    "BusyError",
    "CancelledError",
    "Client",
    "ClosedError",
    "CopyNeededError",
    "DescriptorsError",
    "DeviceError",
    "DtypeError",
    "Error",
    "Event",
    "ExistsError",
    "FlatBundle",
    "ForeignTensor",
    "GenerationGoneError",
    "Holder",
    "Inspection",
    "InvalidArgumentError",
    "LayoutError",
    "LimitError",
    "ListEntry",
    "MetadataError",
    "MissingFrameworkError",
    "NameInvalidError",
    "NoBrokerError",
    "NoMemoryError",
    "NotExportableError",
    "NotFoundError",
    "NumpyAllocator",
    "PeerRefusedError",
    "PermissionDeniedError",
    "Process",
    "ProtocolError",
    "Publication",
    "QuotaError",
    "ReadOnlyError",
    "ReleasedError",
    "Segment",
    "SegmentError",
    "SystemCallError",
    "Tensor",
    "TensorInfo",
    "TimedOutError",
    "Turns",
    "UnsupportedError",
    "UnsupportedTensorError",
    "Update",
    "VersionError",
    "WaitInterruptedError",
    "Watch",
    "WriterGoneError",
    "WrongSocketError",
    "__version__",
    "connect",
    "from_dlpack",
    "join_key",
    "numpy_allocator",
    "prefer_shareable",
    "split_key",
    "to_dlpack",
]
