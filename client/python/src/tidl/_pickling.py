# SPDX-License-Identifier: Apache-2.0
"""Tensors and bundles in pickles: their name travels, the memory stays where it is.

A pickle says which broker, whose name, which generation and how it was attached; it holds neither
data nor paths. Pickling pins the generation at the broker for a minute. Unpickling attaches it
through a client of this process that is connected to the same broker, or opens one that stays.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tidl._errors import (
    BrokerError,
    GenerationGoneError,
    InvalidArgumentError,
    NoBrokerError,
    NotFoundError,
)

if TYPE_CHECKING:
    from tidl import _core
    from tidl._bundle import Bundle
    from tidl._client import Client
    from tidl._tensor import Tensor

# Every client of this process that was made by `tidl.connect()`, by its address. Not a set of weak
# references: other threads open clients while one goes through them, which only `valuerefs()`
# stands.
_open_clients: weakref.WeakValueDictionary[int, Client] = weakref.WeakValueDictionary()

_lock = threading.Lock()
_own_clients: dict[bytes, Client] = {}


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def remember(client: Client) -> None:
    """Counts a client among those that `open_clients()` knows, as long as somebody has it."""
    _open_clients[id(client)] = client


def open_clients() -> list[Client]:
    """Every client of this process that was made by `tidl.connect()`."""
    clients = [reference() for reference in _open_clients.valuerefs()]
    return [client for client in clients if client is not None]


class Address(NamedTuple):
    """What a pickle says of a publication."""

    broker_id: bytes
    owner: int
    name: str
    generation: int
    access: str

    @property
    def qualified_name(self) -> str:
        return f"{self.owner}:{self.name}"


# ---- pickling ----


def reduce_tensor(tensor: Tensor) -> tuple[Any, ...]:
    """What `Tensor.__reduce__()` gives back."""
    if tensor.name is None:
        address = tensor._published
        if address is None:
            raise InvalidArgumentError(
                "this tensor was not published, so another process has no way to it: publish it "
                "first, as it is"
            )
        _pin_anyhow(address)
        return attach, (*address, None)
    address = _pin(tensor, tensor.name)
    if tensor._member is None:
        return attach, (*address, None)
    return attach_member, (*address, tensor._member)


def reduce_bundle(bundle: Bundle) -> tuple[Any, ...]:
    """What `Bundle.__reduce__()` gives back."""
    core = bundle._state.core
    address = _pin(core, core.name)
    if not bundle._levels:
        return attach, (*address, bundle._wanted_below())
    return attach_part, (*address, bundle._wanted_below(), bundle._levels)


def _pin(holder: _core.Tensor | _core.Bundle, name: str) -> Address:
    """Pins through the connection that has the lease; its word counts even for what is gone."""
    address = Address(holder._broker["id"], holder.owner, name, holder.generation, holder.access)
    try:
        holder._pin()
    except BrokerError:
        _pin_anyhow(address)
    return address


def _pin_anyhow(address: Address) -> None:
    error: Exception = NoBrokerError(_no_way_to(address))
    for client in _clients_of(address.broker_id):
        try:
            client._core.pin(address.qualified_name, address.generation)
            return
        except BrokerError as refusal:
            error = refusal
    raise error


# ---- unpickling ----


def attach(
    broker_id: bytes,
    owner: int,
    name: str,
    generation: int,
    access: str,
    keys: tuple[str, ...] | None,
) -> Any:
    """A tensor or bundle, as it was pickled."""
    address = Address(broker_id, owner, name, generation, access)
    error: Exception = NoBrokerError(_no_way_to(address))
    for client in _clients_of(broker_id):
        try:
            return client.get(
                address.qualified_name, access=access, generation=generation, keys=keys
            )
        except BrokerError as refusal:
            error = refusal
        except NotFoundError as refusal:
            raise GenerationGoneError(
                f"the pickled tensor {name!r} is gone: its generation {generation} was replaced "
                "or removed, and it was unpickled too late, or by somebody who may not read it"
            ) from refusal
    raise error


def attach_member(
    broker_id: bytes, owner: int, name: str, generation: int, access: str, path: str
) -> Tensor:
    """One tensor of a bundle, as it was pickled."""
    bundle = attach(broker_id, owner, name, generation, access, (path,))
    tensor: Tensor = bundle.flat[path]
    return tensor


def attach_part(
    broker_id: bytes,
    owner: int,
    name: str,
    generation: int,
    access: str,
    keys: tuple[str, ...],
    levels: tuple[str, ...],
) -> Bundle:
    """What is below some levels of a bundle, as it was pickled."""
    part: Bundle = attach(broker_id, owner, name, generation, access, keys)
    for level in levels:
        part = part[level]  # type: ignore[assignment]  # those that were mappings are
    return part


# ---- the way to a broker ----


def _clients_of(broker_id: bytes) -> Iterator[Client]:
    """Clients of this broker, the last of them one that is opened for it and stays."""
    for client in open_clients():
        try:
            if client.broker.id == broker_id:
                yield client
        except BrokerError:  # closed
            continue
    own = _own_client(broker_id)
    if own is not None:
        yield own


def _own_client(broker_id: bytes) -> Client | None:
    """None when the broker that is found here is another one."""
    from tidl._client import connect

    with _lock:
        client = _own_clients.get(broker_id)
        if client is not None:
            return client
        client = connect(autostart=False)
        if client.broker.id != broker_id:
            client.close()
            return None
        _own_clients[broker_id] = client
        return client


def _no_way_to(address: Address) -> str:
    return (
        f"{address.name!r} was pickled at the broker {address.broker_id.hex()[:8]}, and this "
        "process knows no way to that one: connect to it first, with tidl.connect(address)"
    )
