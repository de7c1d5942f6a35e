# SPDX-License-Identifier: Apache-2.0
"""Connections to a broker, and everything that is asked of it."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Never, Self, SupportsIndex

from tidl import _arguments, _core, _dtypes, _inplace, _programs, _records, _sources
from tidl._bundle import Bundle
from tidl._errors import UnsupportedError
from tidl._pickling import Address as PickledAddress
from tidl._pickling import open_clients, remember
from tidl._records import Broker, Inspection, ListEntry, Publication
from tidl._tensor import Tensor
from tidl._waiting import Waiting, expired

Address = str | os.PathLike[str]
Shape = SupportsIndex | Iterable[SupportsIndex]


def connect(
    address: Address | None = None, *, autostart: bool = True, timeout: float | None = 5.0
) -> Client:
    """Connects to a broker, or starts a private one.

    Args:
        address: path of the broker's socket. None searches: `$TIDL_SOCKET`, the user's runtime
            folder, then the system's broker.
        autostart: whether a private broker may be started when none answers anywhere and no
            address was given.
        timeout: seconds for all of it; None waits for ever.

    Returns:
        A client. Close it, or use it in a `with` statement.

    Raises:
        NoBrokerError: nobody listens at `address`, or anywhere with `autostart=False`.
        AutostartError: no private broker could be started: the program is missing or failed, or
            no folder is fit for its socket.
        WrongSocketError, VersionError, ProtocolError: what listens there is no broker of this kind.
        BrokerUntrustedError: the socket belongs to a user that is not trusted.
        PeerRefusedError: the broker does not serve this user.
        BrokerGoneError: the broker went away meanwhile.
        TimedOutError: the time passed first.
        PermissionDeniedError: the socket may not be used.
        InvalidArgumentError: the address is no path that a socket can have.

    All from NoBrokerError to BrokerGoneError are BrokerErrors.
    """
    milliseconds = _arguments.timeout_ms(timeout)
    core = _core.connect(
        Tensor,
        _arguments.address_text(address),
        _program_name(),
        _programs.bundled_daemon(),
        max(milliseconds, 1) if milliseconds >= 0 else milliseconds,
        _arguments.switch(autostart, "autostart"),
    )
    return Client(core)


@atexit.register
def _close_all() -> None:
    """A script that ends has not died: without this the broker would think so."""
    for client in open_clients():
        client._core.close()


def _program_name() -> str | None:
    """What administrators see; libtidl's own guess would be the interpreter."""
    name = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    return name.encode(errors="replace").decode() if name and "\0" not in name else None


class Client(Waiting):
    """A connection to a broker, made by `tidl.connect()`.

    All methods may be called from any thread; a call that waits holds up no other. Ctrl-C ends a
    wait. After `os.fork()` a child may go on using its copy: its first call connects anew.
    """

    def __init__(self, core: _core.Client) -> None:
        """Use `tidl.connect()`."""
        super().__init__(core)
        remember(self)

    # ---- life ----

    def close(self) -> None:
        """Ends the connection; calls of other threads that still wait fail with `ClosedError`.

        Leases end with it. Tensors that are attached stay mapped until they are gone. What was
        published with `retain="owner"` is removed. What was shared in place becomes private; a
        `RuntimeWarning` names what cannot (docs/in-place.md). Never blocks.
        """
        try:
            self._core.close()
        finally:
            self._loops.close()

    @property
    def closed(self) -> bool:
        """Whether `close()` was called."""
        return self._core.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<tidl.Client closed>"
        return f"<tidl.Client {self.broker.address!r}>"

    def __reduce__(self) -> Never:
        raise UnsupportedError("a client cannot be pickled; connect again on the other side")

    @property
    def broker(self) -> Broker:
        """The broker at the other end, as it introduced itself."""
        return Broker(**self._core.broker())

    def fileno(self) -> int:
        """The descriptor to watch for readability in an event loop; see `dispatch()`."""
        return self._core.fileno()

    def dispatch(self) -> None:
        """Handles what has arrived and sends what is queued. Never blocks.

        Call it when `fileno()` is readable. Not needed otherwise: every other call does it too.
        """
        self._core.dispatch()

    # ---- tensors ----

    def empty(self, shape: Shape, *, dtype: Any = "float32", device: str | None = "cpu") -> Tensor:
        """Allocates a tensor in shareable memory, without a name.

        It is row-major and starts on a page. The pages are fresh and so zero. Publishing it, or
        any view of it that a framework makes, copies nothing. Blocks for one round trip.

        Args:
            shape: extents in elements, an integer or a sequence; may be empty or have zeros.
            dtype: a string as NumPy reads it ("float32", "f4"), in native byte order; a name that
                NumPy lacks ("bfloat16", "float8_e4m3fn"); or a data type of NumPy, torch,
                Paddle, Taichi. Taichi's "i32" and its like are no strings of NumPy: pass `ti.i32`.
            device: "cpu".

        Raises:
            LayoutError: the shape is negative, too large, or has more than 64 dimensions.
            DtypeError: the data type is unknown.
            QuotaError, NoMemoryError: there is no room for it.
        """
        _arguments.require_host(device)
        name = _dtypes.dtype_name(dtype)
        tensor: Tensor = self._core.empty(_arguments.shape_tuple(shape), name)
        return tensor

    def zeros(self, shape: Shape, *, dtype: Any = "float32", device: str | None = "cpu") -> Tensor:
        """Like `empty()`, with the promise that every element is zero."""
        return self.empty(shape, dtype=dtype, device=device)

    def full(
        self, shape: Shape, fill_value: Any, *, dtype: Any = "float32", device: str | None = "cpu"
    ) -> Tensor:
        """Like `empty()`, with every element set to a number.

        Integers and floats without a fraction go into integer types; True, False, 0 and 1 into
        bool. No number is wrapped around, cut off or turned into infinity.

        Raises:
            InvalidArgumentError: the number does not fit into the data type.
            ArgumentTypeError: it is no number, or a complex one for a real type.
            UnsupportedError: floats of 8 bits and less.
        """
        element = _dtypes.encode_scalar(_dtypes.dtype_name(dtype), fill_value)
        tensor = self.empty(shape, dtype=dtype, device=device)
        tensor._fill(element)
        return tensor

    def publish(
        self,
        name: str,
        obj: Any,
        *,
        access: Literal["shared", "live", "immutable"] | str = "shared",
        copy: bool | None = None,
        retain: Literal["persist", "owner"] | float | None = None,
        mode: int = 0o600,
        group: str | int | None = None,
        replace: bool = False,
        keep: int = 1,
        expose: bool = False,
        metadata: Mapping[str, object] | None = None,
        stream: Any = None,
        writable: bool = False,
        nobody_writes: bool = False,
    ) -> Publication:
        """Gives a tensor, or a mapping of tensors, a name that other processes can attach it by.

        Memory that came from `empty()` is published as it is, whatever view of it `obj` is:
        later writes are seen by all. Anything else is copied once, as it is now, and the
        publication says so. Blocks for one round trip (two and the copy for foreign memory).

        Args:
            name: 1 to 255 bytes, parts separated by "/", in the caller's own namespace.
            obj: a `Tensor`, any object with `__dlpack__` on the host, a DLPack capsule (which is
                used up), a NumPy array or a buffer; or a mapping of strings to those and to further
                mappings (a state dict), which is published at once as a bundle. Its owner keeps
                it; it is not needed after the call.
            access: who may write from now on, enforced by the kernel, for the whole segment and
                for good. "shared": everybody who may, and asks for it; "live": this process alone,
                through the tensor that `empty()` made; "immutable": nobody. What is immutable and
                not copied becomes read-only here too, at its address: writing to an array made
                from it before then ends the process.
            copy: None copies if needed, True always (tensors on other devices, too), False never:
                large tensors then become shared memory in place, under their framework's pointer
                (docs/in-place.md), and are kept until `unshare()` or until nobody has them.
            retain: "persist" or None (until removed; a private broker says "until-idle"), "owner"
                (until this client closes, or a moment after it died), or seconds from now.
            mode: permission bits for owner, group and others: reading (4) and writing (2) only.
            group: name or id of the group that the group bits speak of; None: the caller's own.
            replace: whether to take over a name that is in use; holders of what it named before
                keep that.
            keep: how many generations of the name, this one included, `get(generation=)` can have
                when it is replaced again and again.
            expose: whether group or others may see a segment with more pages than the tensor fills.
            metadata: what JSON can say, at most 4096 bytes, for readers.
            stream: None.
            writable: with copy=False: let others write what its framework takes for constant, too
                (of JAX, TensorFlow, read-only NumPy); else that is published as "live".
            nobody_writes: with copy=False: no other thread writes to it during the call and at its
                end; needed only where the system cannot stop such threads (no userfaultfd).

        Returns:
            What became of it: generation, whether it was copied and why.

        Raises:
            ExistsError: the name is taken.
            CopyNeededError: `copy=False` or access="live", and its memory is not shareable.
            AccessError: the memory was published with another access before.
            BusyError: access="immutable" while a forked child, say, has the memory mapped for
                writing; `copy=True` is the way out.
            ArgumentTypeError, DtypeError, LayoutError, DeviceError: no tensor that can be shared.
            UnsupportedTensorError: it is on a GPU, or of a newer DLPack.
            NotExportableError: its own `__dlpack__` or buffer refused; `__cause__` says why. Other
                exceptions of its Python code, such as KeyboardInterrupt, come through.
            QuotaError, NoMemoryError: there is no room for it.
        """
        _arguments.require_no_stream(stream)
        copying = _arguments.copy_value(copy)
        is_writable = _arguments.switch(writable, "writable")
        access, blocks = _inplace.terms(obj, copy, access, is_writable)
        fields = self._core.publish(
            _arguments.name_text(name),
            _sources.publishable(obj, copy is True),
            _arguments.access_value(access),
            copying,
            *_arguments.retention_values(retain),
            _arguments.mode_bits(mode),
            _arguments.group_id(group),
            _arguments.switch(replace, "replace"),
            _arguments.keep_count(keep),
            _arguments.switch(expose, "expose"),
            _arguments.metadata_text(metadata),
            blocks,
            _arguments.switch(nobody_writes, "nobody_writes"),
            is_writable,
        )
        publication = Publication(name=name, **fields)
        if isinstance(obj, Tensor) and not publication.copied:
            broker = self.broker
            obj._published = PickledAddress(
                broker.id,
                broker.uid,
                name.rpartition(":")[2],
                publication.generation,
                "write" if access == "shared" else "read",
            )
        return publication

    def get(
        self,
        name: str,
        *,
        access: Literal["read", "write", "copy_on_write"] | str = "read",
        timeout: float | None = 0,
        generation: int | None = None,
        newer_than: int | None = None,
        device: str | None = None,
        keys: Iterable[str] | None = None,
    ) -> Any:
        """Attaches what is published under a name: a `Tensor`, or a `Bundle` of many.

        The lease on it ends when the tensor and everything made from it are gone, or with
        `release()`. Replacing or removing the name does not disturb it.

        Args:
            name: "path/like/this" in the caller's own namespace, or "owner:path".
            access: "read" maps it for reading; "write" shares writes with every holder;
                "copy_on_write" keeps what is written to this process.
            timeout: seconds to wait for the name; 0 does not wait, None waits for ever.
            generation: attach this generation only; None: the current one.
            newer_than: attach a generation above this one only; None: any.
            device: None or "cpu".
            keys: of a bundle, the paths of the tensors to attach, as in `Bundle.flat`; the path of
                a mapping stands for all in it. The memory of others is not mapped. None: all.

        Raises:
            NotFoundError: nothing that may be read has this name (with timeout 0), or the bundle
                does not have one of the keys.
            InvalidArgumentError: keys were given for a single tensor.
            TimedOutError: it did not appear in time.
            GenerationGoneError: that generation is no longer published.
            PermissionDeniedError: it may not be written.
            AccessError: "write" of what is live or immutable.
            BusyError: "copy_on_write" while somebody else can write.
        """
        _arguments.require_host(device)
        paths = _arguments.bundle_keys(keys)
        result = self._core.get(
            _arguments.name_text(name),
            _arguments.attach_value(access),
            _arguments.timeout_ms(timeout),
            _arguments.generation_number(generation),
            _arguments.newer_than_number(newer_than),
            paths,
        )
        return result if isinstance(result, Tensor) else Bundle(result, paths)

    async def aget(
        self,
        name: str,
        *,
        access: Literal["read", "write", "copy_on_write"] | str = "read",
        timeout: float | None = 0,
        generation: int | None = None,
        newer_than: int | None = None,
        device: str | None = None,
        keys: Iterable[str] | None = None,
    ) -> Any:
        """`get()` for asyncio: `await client.aget("frames/next", timeout=None)`.

        The event loop goes on meanwhile. Cancelling the task, as `asyncio.timeout()` does,
        cancels the request at the broker, too. Arguments and errors are those of `get()`.
        """
        _arguments.require_host(device)
        text = _arguments.name_text(name)
        attach = _arguments.attach_value(access)
        wanted = _arguments.generation_number(generation)
        above = _arguments.newer_than_number(newer_than)
        paths = _arguments.bundle_keys(keys)
        seconds = _arguments.timeout_seconds(timeout)
        result = await self._loops.answer(
            lambda key: self._core.get_begin(text, attach, seconds != 0, wanted, above, paths, key),
            lambda pending: pending.result(),
            seconds or None,
            expired(name, above, seconds),
        )
        return result if isinstance(result, Tensor) else Bundle(result, paths)

    # ---- names ----

    def list(self, pattern: str = "**") -> list[ListEntry]:
        """What is published, as far as the caller may read it, oldest first.

        Args:
            pattern: "*" matches within one part of a name, "**" across parts; without ":" the
                caller's own namespace, "alice:*" alice's, "*:**" everything.
        """
        fields = self._core.list(_arguments.name_text(pattern))
        return [_records.list_entry(entry) for entry in fields]

    def inspect(self, name: str) -> Inspection:
        """Everything about one name: owner, holders, layout, memory, seals.

        Raises:
            NotFoundError: nothing that may be read has this name.
        """
        return _records.inspection(self._core.inspect(_arguments.name_text(name)))

    def remove(self, name: str) -> None:
        """Takes a name out of the listing. Holders keep their memory.

        Raises:
            NotFoundError: nothing has this name.
            PermissionDeniedError: it belongs to somebody else.
        """
        self._core.remove(_arguments.name_text(name))

    def unshare(self, name: str) -> None:
        """Takes a name out of the listing and gives its owner private memory back.

        For what `publish(copy=False)` has shared in place. The tensor has its memory for itself
        again, at the same address and with the content of this moment; whoever has it attached
        keeps what there is, which no longer follows. Also happens when the name was removed or
        replaced and nobody else holds it any more, and when the client is closed.

        Raises:
            NotFoundError: this client has shared nothing in place as that.
            BusyError: the memory is published under another name, too, or another thread is at it.
            NoMemoryError: call it again when there is memory.
            BrokerGoneError, TimedOutError: the broker is gone, or does not answer. The memory *is*
                private then and its owner has it, since that needs no broker; only whether the name
                is still listed is not known.
        """
        self._core.unshare(_arguments.name_text(name))

    def shutdown(self) -> None:
        """Asks the broker to stop. Whoever holds memory keeps it.

        Raises:
            PermissionDeniedError: only the broker's own user and root may.
        """
        self._core.shutdown()
