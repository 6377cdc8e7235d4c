--------------------------------- MODULE V2 ---------------------------------
(* Replication of one partition in the second design. Replicas race for the leader as in V1. Each new leader increments
   /brokers/epoch, and tells the others their role with requests in their queues in ZooKeeper, which outlive restarts. A
   replica rejects the request of an earlier epoch. *)
EXTENDS V1

CONSTANTS
  RejectOldRequests,   \* repair: a replica compares the epoch of a request with that of the leader znode
  SeparateEpoch,       \* broken: the epoch is read and written without a condition
  ObeyEveryEpoch       \* broken: replicas obey requests of earlier epochs

VARIABLES
  epoch,   \* the znode /brokers/epoch
  read,    \* by replica: the epoch that it has read for its election; -1 if none
  queue    \* by replica: epochs of the requests to follow their leader, oldest first

all == <<vars, epoch, read, queue>>

InitRequests ==
  /\ Init
  /\ epoch = 0
  /\ read = [r \in Replicas |-> -1]
  /\ queue = [r \in Replicas |-> <<>>]

ReadEpoch(r) ==
  /\ read[r] = -1 /\ leader.owner = Nobody /\ r \in isr.isr /\ role[r] \in {"none", "follower"}
  /\ read' = [read EXCEPT ![r] = epoch]
  /\ UNCHANGED <<vars, epoch, queue>>

(* The replica wins the race with the next epoch and sends requests to the others. *)
Lead(r) ==
  /\ read[r] /= -1 /\ read[r] < MaxTenure
  /\ SeparateEpoch \/ epoch = read[r]
  /\ WinRace(r, read[r] + 1)
  /\ epoch' = read[r] + 1
  /\ queue' = [f \in Replicas |-> IF f = r THEN queue[f] ELSE Append(queue[f], read[r] + 1)]
  /\ read' = [read EXCEPT ![r] = -1]

ForgetEpoch(r) ==
  /\ read[r] /= -1
  /\ read' = [read EXCEPT ![r] = -1]
  /\ UNCHANGED <<vars, epoch, queue>>

(* The replica handles the first request of its queue. *)
HandleRequest(r) ==
  /\ queue[r] /= <<>>
  /\ queue' = [queue EXCEPT ![r] = Tail(@)]
  /\ LET number == Head(queue[r]) IN
       IF \/ number > tenure[r] /\ (RejectOldRequests => number >= leader.tenure)
          \/ ObeyEveryEpoch /\ number /= tenure[r]
       THEN /\ role' = [role EXCEPT ![r] = "follower"]
            /\ tenure' = [tenure EXCEPT ![r] = number]
            /\ log' = [log EXCEPT ![r] = IF TruncateByEpoch THEN @ ELSE Truncate(@, hw[r])]
            /\ view' = [view EXCEPT ![r] = NoView]
            /\ ends' = [ends EXCEPT ![r] = NoEnds]
            /\ UNCHANGED <<leader, isr, hw, served, committed, crashes>>
       ELSE UNCHANGED vars
  /\ UNCHANGED <<epoch, read>>

NextRequests ==
  \/ Common /\ UNCHANGED <<epoch, read, queue>>
  \/ \E r \in Replicas: ReadEpoch(r) \/ Lead(r) \/ ForgetEpoch(r) \/ HandleRequest(r)

SpecRequests == InitRequests /\ [][NextRequests]_all

EpochNeverFalls == [][epoch' >= epoch]_all
EpochIsNew == [][leader'.owner /= leader.owner /\ leader'.owner /= Nobody => leader'.tenure > leader.tenure]_all
(* A replica never follows the leader of an epoch before the latest one that it has learned. *)
RoleNeverFalls == [][\A r \in Replicas: tenure'[r] >= tenure[r] \/ (role'[r] = "none" /\ tenure'[r] = 0)]_all
=============================================================================
