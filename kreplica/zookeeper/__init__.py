"""ZooKeeper: a client on Twisted, the protocol both ways, and (in ``embedded``) a coordinator that speaks it.

What callers use is exported here.  Client, from the outside in:

* ``client`` the operations and the chroot; ``multi`` what comes back from a multi; ``standing_watch`` watches that stay
* ``batches`` many conditional writes, or reads, cut into multis of a bounded size and pipelined
* ``session`` finding a server, keeping alive, moving to another, ending; ``waiting`` requests without a connection
* ``watches`` the registry of one session; ``sasl`` DIGEST-MD5
* ``ensemble`` connect strings and the order of servers; ``chroot`` a client's paths and the server's
* ``connection`` one TCP connection: requests out, answers in, pings

Protocol, without I/O, for both sides:

* ``errors`` one class per error code
* ``jute`` the record encoding; ``framing`` a byte stream into frames
* ``records`` operation codes, stat, ACLs, watch events, the session handshake, frame headers
* ``requests`` every request as a value (``operations``: those that can stand in a multi), ``responses`` every answer's
  body; all with their encoding both ways

* ``embedded`` the coordinator of a single machine and of simulations
* ``java_server`` what starts ZooKeeper's own server
"""

from kreplica.zookeeper.batches import BatchLimits, GuardFailed, UnitOutcome, list_all, read_all, write_units
from kreplica.zookeeper.client import ZooKeeperClient
from kreplica.zookeeper.errors import (
    AuthFailed,
    BadArguments,
    BadVersion,
    ClientClosed,
    ConnectionLoss,
    InvalidAcl,
    MultiFailed,
    NoAuth,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    NotReadOnly,
    NotSent,
    OperationTimeout,
    PipelineFull,
    RequestTimeout,
    RequestTooLarge,
    RuntimeInconsistency,
    SessionExpired,
    SessionMoved,
    Throttled,
    Unimplemented,
    ZooKeeperError,
)
from kreplica.zookeeper.records import CREATOR_ALL_ACL, OPEN_ACL, READ_ACL, Acl, EventType, Permission, Stat, WatchEvent
from kreplica.zookeeper.requests import Check, Create, Delete, GetChildren, GetData, Operation, Read, SetData
from kreplica.zookeeper.responses import Created, OperationResult, ReadResult
from kreplica.zookeeper.sasl import SaslCredentials
from kreplica.zookeeper.session import SessionState
from kreplica.zookeeper.standing_watch import Watch

__all__ = [
    "CREATOR_ALL_ACL",
    "OPEN_ACL",
    "READ_ACL",
    "Acl",
    "AuthFailed",
    "BadArguments",
    "BadVersion",
    "BatchLimits",
    "Check",
    "ClientClosed",
    "ConnectionLoss",
    "Create",
    "Created",
    "Delete",
    "EventType",
    "GetChildren",
    "GetData",
    "GuardFailed",
    "InvalidAcl",
    "MultiFailed",
    "NoAuth",
    "NoChildrenForEphemerals",
    "NoNode",
    "NodeExists",
    "NotEmpty",
    "NotReadOnly",
    "NotSent",
    "Operation",
    "OperationResult",
    "OperationTimeout",
    "Permission",
    "PipelineFull",
    "Read",
    "ReadResult",
    "RequestTimeout",
    "RequestTooLarge",
    "RuntimeInconsistency",
    "SaslCredentials",
    "SessionExpired",
    "SessionMoved",
    "SessionState",
    "SetData",
    "Stat",
    "Throttled",
    "Unimplemented",
    "UnitOutcome",
    "Watch",
    "WatchEvent",
    "ZooKeeperClient",
    "ZooKeeperError",
    "list_all",
    "read_all",
    "write_units",
]
