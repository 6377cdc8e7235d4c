"""ZooKeeper: a Twisted client, the wire protocol for client and server, and an embedded server (``embedded``).

The public API is exported here.  Client modules, from the outermost layer inwards:

* ``client``: operations and chroot; ``multi``: decoding of multi responses; ``persistent_watch``: persistent watches
* ``batches``: splits many writes or reads into multis of bounded size and pipelines them
* ``session``: connects, keeps the session alive, fails over, closes; ``session_options``: its options
* ``waiting_requests``: queue of requests that wait for a connection
* ``watches``: watch registry of one session; ``sasl``: authentication with SASL
* ``ensemble``: connect strings and server order; ``chroot``: path mapping; ``default_acls``: default ACLs of znodes
* ``connection``: one TCP connection with its requests, responses and pings

Protocol modules, without I/O, used by client and server:

* ``errors``: one class per error code
* ``digest_md5``: SASL DIGEST-MD5
* ``jute``: record encoding; ``framing``: splits a byte stream into frames
* ``records``: operation codes, stat, ACLs, watch events, session handshake, frame headers
* ``requests``: all requests as immutable values; ``operations``: the requests allowed in a multi
* ``responses``: response bodies

Servers:

* ``embedded``: ZooKeeper-protocol server for a single machine and for simulations
* ``java_server``: command line that starts Apache ZooKeeper
"""

from kreplica.zookeeper.batches import BatchLimits, GuardFailed, UnitOutcome, list_all, read_all, write_units
from kreplica.zookeeper.client import ZooKeeperClient
from kreplica.zookeeper.digest_md5 import SaslCredentials
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
from kreplica.zookeeper.persistent_watch import Watch
from kreplica.zookeeper.records import CREATOR_ALL_ACL, OPEN_ACL, READ_ACL, Acl, EventType, Permission, Stat, WatchEvent
from kreplica.zookeeper.requests import Check, Create, Delete, GetChildren, GetData, Operation, Read, SetData
from kreplica.zookeeper.responses import Created, OperationResult, ReadResult
from kreplica.zookeeper.session import SessionState

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
