--------------------------------- MODULE V1 ---------------------------------
(* Replication of one partition in the first design: replicas race for an ephemeral znode in ZooKeeper, the first
   in-sync replica leads, and a follower truncates its log to its high watermark.

   The tenure numbers the leaders in the order in which they won the race. It identifies records in the model only,
   unless TruncateByEpoch is TRUE. *)
EXTENDS Logs, FiniteSets, TLC

CONSTANTS
  Replicas,
  Nobody,
  MaxEnd, MaxTenure, MaxVersion, MaxCrashes,
  TruncateByEpoch,     \* repair: a follower truncates to the longest common prefix, as in V3
  ConditionalWrites,   \* repair: a leader writes the ISR only if its znode is unchanged
  FencedWrites,        \* repair: a leader writes the ISR only while it owns the leader znode
  KeepHighWatermark    \* repair: a new leader's high watermark is not its log end offset, but grows with its ISR

VARIABLES
  leader,     \* the ephemeral leader znode: owner and tenure
  isr,        \* the ISR znode: members and version
  log, hw, role,
  tenure,     \* by replica: the tenure that it leads or follows
  view,       \* ISR and version known to a leader
  ends,       \* by leader and follower: log end offset
  served,     \* by tenure: log and high watermark that its leader has reached
  committed,  \* all records that were ever acknowledged
  crashes     \* number of crashes

vars == <<leader, isr, log, hw, role, tenure, view, ends, served, committed, crashes>>

NoView == [isr |-> {}, version |-> -1]
NoEnds == [r \in Replicas |-> -1]

Init ==
  /\ leader = [owner |-> Nobody, tenure |-> 0]
  /\ isr = [isr |-> Replicas, version |-> 0]
  /\ log = [r \in Replicas |-> EmptyLog]
  /\ hw = [r \in Replicas |-> 0]
  /\ role = [r \in Replicas |-> "none"]
  /\ tenure = [r \in Replicas |-> 0]
  /\ view = [r \in Replicas |-> NoView]
  /\ ends = [r \in Replicas |-> NoEnds]
  /\ served = <<>>
  /\ committed = EmptyLog
  /\ crashes = 0

-----------------------------------------------------------------------------
(* A new leader considers its log committed, and waits for other replicas before it opens. *)
WinRace(r, number) ==
  /\ leader.owner = Nobody /\ r \in isr.isr /\ role[r] \in {"none", "follower"}
  /\ leader' = [owner |-> r, tenure |-> number]
  /\ role' = [role EXCEPT ![r] = "electing"]
  /\ tenure' = [tenure EXCEPT ![r] = number]
  /\ hw' = [hw EXCEPT ![r] = IF KeepHighWatermark THEN @ ELSE log[r].end]
  /\ view' = [view EXCEPT ![r] = isr]
  /\ ends' = [ends EXCEPT ![r] = NoEnds]
  /\ served' = [t \in {number} \union {t \in DOMAIN served: \E b \in Replicas \ {r}: tenure[b] = t}
                |-> IF t = number THEN [log |-> log[r], hw |-> hw'[r]] ELSE served[t]]
  /\ UNCHANGED <<isr, log, committed, crashes>>

(* The log end offset at the start of a leader's tenure; the high watermark is not below it unless KeepHighWatermark. *)
Start(r) == IF LastEpoch(log[r]) = tenure[r] THEN log[r].runs[Len(log[r].runs)].start ELSE log[r].end

MayWriteIsr(r) ==
  /\ isr.version < MaxVersion
  /\ ConditionalWrites => isr.version = view[r].version
  /\ FencedWrites => leader = [owner |-> r, tenure |-> tenure[r]]

(* The leader writes the replicas that have caught up as the ISR, and opens. *)
OpenPartition(r, members) ==
  /\ role[r] = "electing" /\ r \in members /\ MayWriteIsr(r)
  /\ \A f \in members \ {r}: ends[r][f] >= log[r].end
  /\ isr' = [isr |-> members, version |-> isr.version + 1]
  /\ view' = [view EXCEPT ![r] = isr']
  /\ role' = [role EXCEPT ![r] = "leader"]
  /\ committed' = IF hw[r] > committed.end THEN Truncate(log[r], hw[r]) ELSE committed
  /\ UNCHANGED <<leader, log, hw, tenure, ends, served, crashes>>

(* A replica learns of the current leader through its watch. *)
BecomeFollower(r) ==
  /\ leader.owner \notin {Nobody, r} /\ leader.tenure > tenure[r]
  /\ role' = [role EXCEPT ![r] = "follower"]
  /\ tenure' = [tenure EXCEPT ![r] = leader.tenure]
  /\ log' = [log EXCEPT ![r] = IF TruncateByEpoch THEN @ ELSE Truncate(@, hw[r])]
  /\ view' = [view EXCEPT ![r] = NoView]
  /\ ends' = [ends EXCEPT ![r] = NoEnds]
  /\ UNCHANGED <<leader, isr, hw, served, committed, crashes>>

-----------------------------------------------------------------------------
Produce(r) ==
  /\ role[r] = "leader" /\ log[r].end < MaxEnd
  /\ log' = [log EXCEPT ![r] = Append_(@, tenure[r], 1)]
  /\ served' = [served EXCEPT ![tenure[r]].log = log'[r]]
  /\ UNCHANGED <<leader, isr, hw, role, tenure, view, ends, committed, crashes>>

(* A follower receives a response from its leader. *)
FollowerAppend(r, to, high) ==
  /\ role[r] = "follower" /\ tenure[r] \in DOMAIN served
  /\ LET response == served[tenure[r]] IN
       /\ to >= log[r].end /\ to <= response.log.end /\ high <= response.hw
       /\ ~TruncateByEpoch \/ Matches(log[r], response.log)
       /\ log' = [log EXCEPT ![r] = Copy(@, response.log, to)]
       /\ hw' = [hw EXCEPT ![r] = Max(@, Min(high, to))]
  /\ UNCHANGED <<leader, isr, role, tenure, view, ends, served, committed, crashes>>

FollowerTruncate(r) ==
  /\ TruncateByEpoch /\ role[r] = "follower" /\ tenure[r] \in DOMAIN served
  /\ ~Matches(log[r], served[tenure[r]].log)
  /\ log' = [log EXCEPT ![r] = Truncate(@, TruncationOffset(@, served[tenure[r]].log))]
  /\ hw' = [hw EXCEPT ![r] = Min(@, log'[r].end)]
  /\ UNCHANGED <<leader, isr, role, tenure, view, ends, served, committed, crashes>>

RecordFetch(r, f) ==
  /\ role[r] \in {"electing", "leader"} /\ role[f] = "follower" /\ tenure[f] = tenure[r]
  /\ ~TruncateByEpoch \/ Matches(log[f], log[r])
  /\ ends[r][f] /= log[f].end
  /\ ends' = [ends EXCEPT ![r][f] = log[f].end]
  /\ UNCHANGED <<leader, isr, log, hw, role, tenure, view, served, committed, crashes>>

(* The committer acknowledges a record when all in-sync replicas have it. *)
Commit(r, to) ==
  /\ role[r] = "leader" /\ to > hw[r] /\ to <= log[r].end
  /\ \A f \in view[r].isr \ {r}: ends[r][f] >= to
  /\ hw' = [hw EXCEPT ![r] = to]
  /\ served' = [served EXCEPT ![tenure[r]].hw = to]
  /\ committed' = IF to > committed.end THEN Truncate(log[r], to) ELSE committed
  /\ UNCHANGED <<leader, isr, log, role, tenure, view, ends, crashes>>

(* A replica that is late leaves the ISR; one that has caught up with the high watermark joins. *)
WriteIsr(r, f) ==
  /\ role[r] = "leader" /\ f /= r /\ MayWriteIsr(r)
  /\ f \in view[r].isr \/ ends[r][f] >= Max(hw[r], Start(r))
  /\ isr' = [isr |-> IF f \in view[r].isr THEN view[r].isr \ {f} ELSE view[r].isr \union {f},
             version |-> isr.version + 1]
  /\ view' = [view EXCEPT ![r] = isr']
  /\ UNCHANGED <<leader, log, hw, role, tenure, ends, served, committed, crashes>>

-----------------------------------------------------------------------------
(* The session of the leader ends; its process may not know it yet. *)
LoseSession ==
  /\ leader.owner /= Nobody
  /\ leader' = [leader EXCEPT !.owner = Nobody]
  /\ UNCHANGED <<isr, log, hw, role, tenure, view, ends, served, committed, crashes>>

(* A leader learns that it no longer leads. *)
StepDown(r) ==
  /\ role[r] \in {"electing", "leader"}
  /\ leader /= [owner |-> r, tenure |-> tenure[r]]
  /\ role' = [role EXCEPT ![r] = "none"]
  /\ view' = [view EXCEPT ![r] = NoView]
  /\ ends' = [ends EXCEPT ![r] = NoEnds]
  /\ UNCHANGED <<leader, isr, log, hw, tenure, served, committed, crashes>>

(* A process ends; its session ends in another step. A restarted replica keeps its log and its high watermark. *)
Crash(r) ==
  /\ role[r] /= "none" /\ crashes < MaxCrashes
  /\ crashes' = crashes + 1
  /\ role' = [role EXCEPT ![r] = "none"]
  /\ tenure' = [tenure EXCEPT ![r] = 0]
  /\ view' = [view EXCEPT ![r] = NoView]
  /\ ends' = [ends EXCEPT ![r] = NoEnds]
  /\ UNCHANGED <<leader, isr, log, hw, served, committed>>

Common ==
  \/ LoseSession
  \/ \E r \in Replicas:
       \/ \E members \in SUBSET Replicas: OpenPartition(r, members)
       \/ Produce(r) \/ FollowerTruncate(r) \/ StepDown(r) \/ Crash(r)
       \/ role[r] = "follower" /\ tenure[r] \in DOMAIN served
            /\ \E to \in log[r].end..Min(log[r].end + 1, served[tenure[r]].log.end):
                 \E high \in {hw[r], served[tenure[r]].hw}:
                   (to > log[r].end \/ Min(high, to) > hw[r]) /\ FollowerAppend(r, to, high)
       \/ \E f \in Replicas \ {r}: RecordFetch(r, f) \/ WriteIsr(r, f)
       \/ Commit(r, hw[r] + 1)

Next ==
  \/ Common
  \/ \E r \in Replicas: BecomeFollower(r) \/ (leader.tenure < MaxTenure /\ WinRace(r, leader.tenure + 1))

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
OneLeaderPerEpoch ==
  \A a, b \in Replicas: a /= b /\ {role[a], role[b]} \subseteq {"electing", "leader"} => tenure[a] /= tenure[b]

(* The leader that owns the znode has every acknowledged record. *)
NoCommittedRecordIsLost ==
  \A r \in Replicas: role[r] = "leader" /\ leader = [owner |-> r, tenure |-> tenure[r]] => IsPrefix(committed, log[r])

(* Replicas agree below their high watermarks. *)
EqualBelowHighWatermark ==
  \A a, b \in Replicas: LET end == Min(hw[a], hw[b]) IN
    {role[a], role[b]} \intersect {"electing"} /= {} \/ Truncate(log[a], end) = Truncate(log[b], end)

CommittedNeverChanges == [][IsPrefix(committed, committed')]_vars
HighWatermarkNeverFalls ==
  [][\A r \in Replicas: role[r] = "leader" /\ role'[r] = "leader" /\ tenure'[r] = tenure[r] => hw'[r] >= hw[r]]_vars

Symmetry == Permutations(Replicas)
=============================================================================
