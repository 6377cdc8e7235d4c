--------------------------------- MODULE V3 ---------------------------------
(* Replication of one partition in the design that kreplica uses: a controller elects leaders in leader epochs, logs are
   truncated by epoch, and ISR changes are conditional writes of the partition's state znode.

   Messages have no queues. A command of the controller and a response of a leader can arrive at any time, in any order
   and repeatedly, as long as the receiver accepts it. docs/explanation/models.md explains the model. *)
EXTENDS Logs, FiniteSets, TLC

CONSTANTS
  Replicas,
  NoLeader,
  MinInsync,                 \* min.insync.replicas
  MaxEnd, MaxEpoch, MaxVersion, MaxRestarts, MaxLosses,    \* bounds of the state space
  TruncateToHighWatermark,   \* broken rules: each is FALSE in the design
  UnconditionalWrites,
  CountCommittedIsrOnly,
  IgnoreEpochStart,
  IgnoreBrokerEpoch,
  IgnoreLeaderEpoch,
  KeepUncleanReplicas

VARIABLES
  znode,      \* the state znode
  states,     \* contents of the state znode that a broker may still receive
  inc,        \* broker epoch of each registration in ZooKeeper
  known,      \* broker epoch that the controller has handled
  written,    \* version of the state znode that the controller wrote last; it may not know later ones
  noticed,    \* this version when the controller handled the registration
  intact,     \* broker epoch since which the registered process has lost no records
  up,         \* the process is registered
  lost,       \* the log has lost records since the process registered
  log, hw, role, epoch,
  view,       \* the ISR, the ELR and the version known to a leader
  proposed,   \* the pending ISR write of a leader
  ends,       \* by leader and follower: broker epoch and offset of the last fetch
  start,      \* log end offset at the start of a leader's epoch
  served,     \* by epoch: log and high watermark that its leader has reached, from which responses are made
  departed,   \* by follower, broker epoch and epoch: its log when it left the epoch, for fetches that arrive later
  committed,  \* all records that were ever below the high watermark of a leader
  forced      \* the controller had to elect a replica that may have lost records

vars == <<znode, states, inc, known, written, noticed, intact, up, lost, log, hw, role, epoch, view, proposed, ends,
          start, served, departed, committed, forced>>
cluster == <<inc, known, written, noticed, intact, up, lost>>
leading == <<view, proposed, ends, start>>

None == "none"
NoWrite == [isr |-> {}, elr |-> {}, version |-> -1, epoch |-> -1, registered |-> FALSE, done |-> FALSE]
NoView == [isr |-> {}, elr |-> {}, version |-> -1]
Unknown == [inc |-> 0, end |-> -1]
NoEnds == [follower \in Replicas |-> Unknown]

Init ==
  /\ \E leader \in Replicas:
       znode = [leader |-> leader, epoch |-> 1, isr |-> Replicas, elr |-> {}, version |-> 0]
  /\ states = {znode}
  /\ inc = [r \in Replicas |-> 1] /\ known = inc /\ intact = inc
  /\ written = 0 /\ noticed = [r \in Replicas |-> 0]
  /\ up = [r \in Replicas |-> TRUE]
  /\ lost = [r \in Replicas |-> FALSE]
  /\ log = [r \in Replicas |-> EmptyLog]
  /\ hw = [r \in Replicas |-> 0]
  /\ role = [r \in Replicas |-> None]
  /\ epoch = [r \in Replicas |-> 0]
  /\ view = [r \in Replicas |-> NoView]
  /\ proposed = [r \in Replicas |-> NoWrite]
  /\ ends = [r \in Replicas |-> NoEnds]
  /\ start = [r \in Replicas |-> 0]
  /\ served = <<>>
  /\ departed = <<>>
  /\ committed = EmptyLog
  /\ forced = FALSE

IsLeader(r) == role[r] = "leader"
IsFollower(r) == role[r] = "follower"

-----------------------------------------------------------------------------
(* Removes values that later steps can no longer use, so that more states are equal. *)

CanReceive(state, newEpoch, newView, newNoticed) ==
  \E r \in Replicas: \/ state.epoch > newEpoch[r] /\ state.version >= newNoticed[r]
                     \/ state.version >= written'
                     \/ state.epoch = newEpoch[r] /\ state.version > newView[r].version

CanLead(e) == \E state \in states': state.epoch = e

(* Conjoined to each step that writes the znode, or changes an epoch or a view. *)
UpdateStates(new) ==
  /\ states' = {state \in states \union new:
                 CanReceive(state, epoch', view', noticed')}
  /\ served' = [e \in {e \in DOMAIN served: CanLead(e) \/ \E r \in Replicas: epoch'[r] = e} |-> served[e]]

(* The log of a follower when it leaves its epoch. *)
Depart(r) ==
  departed' = LET old == IF IsFollower(r) THEN (<<r, inc[r], epoch[r]>> :> log[r]) @@ departed ELSE departed
              IN [key \in {key \in DOMAIN old: CanLead(key[3])
                                               \/ \E b \in Replicas: role'[b] = "leader" /\ epoch'[b] = key[3]}
                  |-> old[key]]

-----------------------------------------------------------------------------
(* Roles. *)

(* A broker obeys a LeaderAndIsr request with a current or earlier content of the state znode. *)
MayReceive(r, state) ==
  /\ up[r] /\ known[r] = inc[r] /\ state.version >= noticed[r]
  /\ \/ state.epoch > epoch[r]
     \/ state.epoch = epoch[r] /\ role[r] = None

Become(r, state) ==
  /\ state \in states /\ MayReceive(r, state)
  /\ role' = [role EXCEPT ![r] = IF state.leader = r THEN "leader" ELSE "follower"]
  /\ epoch' = [epoch EXCEPT ![r] = state.epoch]
  /\ view' = [view EXCEPT ![r] = [isr |-> state.isr, elr |-> state.elr, version |-> state.version]]
  /\ proposed' = [proposed EXCEPT ![r] = IF @ /= NoWrite /\ @.epoch = state.epoch /\ @.version >= state.version
                                         THEN @ ELSE NoWrite]
  /\ ends' = [ends EXCEPT ![r] = NoEnds]
  /\ start' = [start EXCEPT ![r] = IF state.leader = r THEN log[r].end ELSE 0]
  /\ log' = [log EXCEPT ![r] = IF TruncateToHighWatermark /\ state.leader /= r THEN Truncate(@, hw[r]) ELSE @]
  /\ UNCHANGED <<znode, hw, committed, forced>> /\ UNCHANGED cluster
  /\ states' = {s \in states: CanReceive(s, epoch', view', noticed')}
  /\ served' = LET own == IF state.leader = r THEN (state.epoch :> [log |-> log[r], hw |-> hw[r]]) @@ served ELSE served
               IN [e \in {e \in DOMAIN own: CanLead(e) \/ \E b \in Replicas: epoch'[b] = e} |-> own[e]]
  /\ Depart(r)

(* A leader learns a later state of its epoch: the outcome of its write, or the controller's write. *)
UpdateView(r, state) ==
  /\ IsLeader(r) /\ state \in states /\ state.epoch = epoch[r] /\ state.version > view[r].version
  /\ view' = [view EXCEPT ![r] = [isr |-> state.isr, elr |-> state.elr, version |-> state.version]]
  /\ proposed' = [proposed EXCEPT ![r] = NoWrite]
  /\ UNCHANGED <<znode, log, hw, role, epoch, ends, start, committed, forced, departed>> /\ UNCHANGED cluster
  /\ UpdateStates({})

(* A leader stops leading: it has read a later epoch, its session ended, or its disk failed. *)
StopRole(r, newEpoch) ==
  /\ role[r] /= None /\ newEpoch >= epoch[r] /\ (newEpoch = epoch[r] \/ \E state \in states: state.epoch = newEpoch)
  /\ role' = [role EXCEPT ![r] = None]
  /\ epoch' = [epoch EXCEPT ![r] = newEpoch]
  /\ view' = [view EXCEPT ![r] = NoView]
  /\ ends' = [ends EXCEPT ![r] = NoEnds]
  /\ start' = [start EXCEPT ![r] = 0]
  /\ UNCHANGED <<znode, log, hw, proposed, committed, forced>> /\ UNCHANGED cluster
  /\ UpdateStates({})
  /\ Depart(r)

-----------------------------------------------------------------------------
(* Records. *)

LeaderAppend(r, count) ==
  /\ IsLeader(r) /\ count > 0
  /\ log' = [log EXCEPT ![r] = Append_(@, epoch[r], count)]
  /\ served' = [served EXCEPT ![epoch[r]].log = log'[r]]
  /\ UNCHANGED <<znode, states, hw, role, epoch, departed, committed, forced>> /\ UNCHANGED cluster
  /\ UNCHANGED leading

(* A follower receives a response from its leader: records up to `to`, and a high watermark that the leader had. *)
FollowerAppend(r, to, high) ==
  /\ IsFollower(r) /\ epoch[r] \in DOMAIN served
  /\ LET leader == served[epoch[r]] IN
       /\ to >= log[r].end /\ to <= leader.log.end /\ high <= leader.hw
       /\ TruncateToHighWatermark \/ Matches(log[r], leader.log)
       /\ log' = [log EXCEPT ![r] = Copy(@, leader.log, to)]
       /\ hw' = [hw EXCEPT ![r] = Max(@, Min(high, to))]
  /\ UNCHANGED <<znode, states, role, epoch, served, departed, committed, forced>> /\ UNCHANGED cluster
  /\ UNCHANGED leading

FollowerTruncate(r) ==
  /\ IsFollower(r) /\ epoch[r] \in DOMAIN served /\ ~TruncateToHighWatermark
  /\ LET leaderLog == served[epoch[r]].log IN
       /\ ~Matches(log[r], leaderLog)
       /\ log' = [log EXCEPT ![r] = Truncate(@, TruncationOffset(@, leaderLog))]
       /\ hw' = [hw EXCEPT ![r] = Min(@, log'[r].end)]
  /\ UNCHANGED <<znode, states, role, epoch, served, departed, committed, forced>> /\ UNCHANGED cluster
  /\ UNCHANGED leading

(* A leader receives a fetch from the offset `at`, which the follower sent in its epoch `e`. A broker may name an
   earlier broker epoch `i`, because it learns of its registration later than the controller. *)
RecordFetch(r, follower, i, e, at) ==
  /\ IsLeader(r) /\ follower /= r
  /\ e = epoch[r] \/ IgnoreLeaderEpoch
  /\ i >= ends[r][follower].inc
  /\ \E sender \in (IF IsFollower(follower) /\ epoch[follower] = e /\ i <= inc[follower] THEN {log[follower]} ELSE {})
                   \union (IF <<follower, i, e>> \in DOMAIN departed THEN {departed[<<follower, i, e>>]} ELSE {}):
       /\ at <= sender.end /\ at <= log[r].end
       /\ TruncateToHighWatermark \/ IgnoreLeaderEpoch \/ Matches(Truncate(sender, at), log[r])
  /\ ends' = [ends EXCEPT ![r][follower] = [inc |-> i, end |-> at]]
  /\ UNCHANGED <<znode, states, log, hw, role, epoch, view, proposed, start, served, departed, committed, forced>>
  /\ UNCHANGED cluster

Counted(r) == view[r].isr \union (IF proposed[r] = NoWrite \/ CountCommittedIsrOnly THEN {} ELSE proposed[r].isr)

(* The offset up to which all counted replicas have the leader's records. *)
CommitPoint(r) ==
  LET offsets == {log[r].end} \union {ends[r][f].end: f \in Counted(r) \ {r}}
  IN CHOOSE offset \in offsets: \A other \in offsets: offset <= other

AdvanceHighWatermark(r, to) ==
  /\ IsLeader(r) /\ to > hw[r] /\ to <= CommitPoint(r)
  /\ Cardinality(view[r].isr) >= Min(MinInsync, Cardinality(Replicas)) /\ view[r].elr = {}
  /\ hw' = [hw EXCEPT ![r] = to]
  /\ served' = [served EXCEPT ![epoch[r]].hw = Max(@, to)]
  /\ committed' = IF to > committed.end THEN Truncate(log[r], to) ELSE committed
  /\ UNCHANGED <<znode, states, log, role, epoch, departed, forced>> /\ UNCHANGED cluster /\ UNCHANGED leading

-----------------------------------------------------------------------------
(* The ISR. *)

EligibleAfter(isr, elr, newIsr, unclean) ==
  IF Cardinality(newIsr) >= Min(MinInsync, Cardinality(Replicas)) THEN {} ELSE ((elr \union isr) \ newIsr) \ unclean

MayJoin(r, follower) ==
  /\ ends[r][follower].end >= hw[r]
  /\ ends[r][follower].end >= 0
  /\ ends[r][follower].end >= start[r] \/ IgnoreEpochStart

(* A leader decides to write another ISR. The write is sent only if the joining replicas are still registered. *)
ProposeIsr(r, isr) ==
  /\ IsLeader(r) /\ proposed[r] = NoWrite /\ r \in isr
  /\ \A follower \in isr \ view[r].isr: MayJoin(r, follower)
  /\ LET elr == EligibleAfter(view[r].isr, view[r].elr, isr, {}) IN
       /\ isr /= view[r].isr \/ elr /= view[r].elr
       /\ proposed' = [proposed EXCEPT ![r] =
            [isr |-> isr, elr |-> elr, version |-> view[r].version, epoch |-> epoch[r],
             registered |-> \A f \in isr \ view[r].isr: IgnoreBrokerEpoch \/ ends[r][f].inc = inc[f],
             done |-> FALSE]]
  /\ UNCHANGED <<znode, states, log, hw, role, epoch, view, ends, start, served, departed, committed, forced>>
  /\ UNCHANGED cluster

(* A leader knows that its write has not taken effect and never will. *)
WithdrawIsr(r) ==
  /\ proposed[r] /= NoWrite /\ ~proposed[r].done
  /\ proposed' = [proposed EXCEPT ![r] = NoWrite]
  /\ UNCHANGED <<znode, states, log, hw, role, epoch, view, ends, start, served, departed, committed, forced>>
  /\ UNCHANGED cluster

(* ZooKeeper executes the write of a leader; the leader learns of it by UpdateView. *)
WriteIsr(r) ==
  /\ proposed[r] /= NoWrite /\ proposed[r].registered /\ ~proposed[r].done
  /\ proposed[r].version = znode.version \/ UnconditionalWrites
  /\ znode' = [leader |-> r, epoch |-> proposed[r].epoch, isr |-> proposed[r].isr, elr |-> proposed[r].elr,
               version |-> znode.version + 1]
  /\ proposed' = [proposed EXCEPT ![r].done = TRUE]
  /\ UNCHANGED <<log, hw, role, epoch, view, ends, start, committed, forced, departed>> /\ UNCHANGED cluster
  /\ UpdateStates({znode'})

-----------------------------------------------------------------------------
(* The controller. It may believe at any time that any brokers have failed. *)

(* The ISR and the ELR without replicas that may have lost records. *)
WithoutUnclean(unclean) ==
  LET isr == znode.isr \ unclean
      elr == znode.elr \ unclean
  IN IF KeepUncleanReplicas THEN [isr |-> znode.isr, elr |-> znode.elr, forced |-> FALSE]
     ELSE IF isr /= {} THEN [isr |-> isr, elr |-> elr, forced |-> FALSE]
     ELSE IF elr /= {} THEN [isr |-> elr, elr |-> {}, forced |-> FALSE]
     ELSE [isr |-> IF znode.leader \in znode.isr THEN {znode.leader} ELSE znode.isr, elr |-> {}, forced |-> TRUE]

(* The controller writes the state znode. It handles the new registrations of the brokers `unclean`, which may have lost
   records. An election of a new leader, or a smaller ISR, starts a new leader epoch. *)
ControllerWrite(leader, isr, elr, newEpoch, unclean) ==
  LET clean == WithoutUnclean(unclean) IN
  /\ \A r \in unclean: up[r] /\ inc[r] > known[r]
  /\ isr /= {}
  /\ \/ leader \in isr /\ isr \subseteq clean.isr
     \/ leader \in clean.elr /\ isr = {leader}
     \/ leader = NoLeader /\ isr \subseteq clean.isr
  /\ elr \subseteq EligibleAfter(clean.isr, clean.elr, isr, unclean)
  /\ newEpoch \in {znode.epoch, znode.epoch + 1}
  /\ newEpoch = znode.epoch => /\ leader = znode.leader /\ isr = znode.isr /\ elr = znode.elr
                               /\ unclean \intersect (isr \union elr) = {} \/ KeepUncleanReplicas
  /\ znode' = [leader |-> leader, epoch |-> newEpoch, isr |-> isr, elr |-> elr, version |-> znode.version + 1]
  /\ forced' = (forced \/ clean.forced)
  /\ known' = [r \in Replicas |-> IF r \in unclean THEN inc[r] ELSE known[r]]
  /\ written' = znode'.version
  /\ noticed' = [r \in Replicas |-> IF r \in unclean THEN written' ELSE noticed[r]]
  /\ UNCHANGED <<inc, intact, up, lost, log, hw, role, epoch, view, proposed, ends, start, committed, departed>>
  /\ UpdateStates({znode'})

(* The controller handles the new registration of a broker that has lost nothing. *)
Notice(r) ==
  /\ up[r] /\ inc[r] > known[r] /\ intact[r] <= known[r]
  /\ known' = [known EXCEPT ![r] = inc[r]]
  /\ noticed' = [noticed EXCEPT ![r] = written]
  /\ UNCHANGED <<znode, states, inc, written, intact, up, lost, log, hw, role, epoch, served, departed, committed,
                 forced>>
  /\ UNCHANGED leading

-----------------------------------------------------------------------------
(* Failures. *)

(* The process of a broker ends. A later process has its log, without its end after a power loss, and the high
   watermark of a checkpoint. *)
Stop(r, newLog, newHw) ==
  /\ IsPrefix(newLog, log[r]) /\ newHw <= Min(hw[r], newLog.end)
  /\ log' = [log EXCEPT ![r] = newLog]
  /\ lost' = [lost EXCEPT ![r] = @ \/ newLog /= log[r]]
  /\ hw' = [hw EXCEPT ![r] = newHw]
  /\ up' = [up EXCEPT ![r] = FALSE]
  /\ role' = [role EXCEPT ![r] = None]
  /\ epoch' = [epoch EXCEPT ![r] = 0]
  /\ view' = [view EXCEPT ![r] = NoView]
  /\ ends' = [ends EXCEPT ![r] = NoEnds]
  /\ start' = [start EXCEPT ![r] = 0]
  /\ UNCHANGED <<znode, states, inc, known, written, noticed, intact, proposed, served, committed, forced>>
  /\ Depart(r)

(* A broker registers in ZooKeeper, after a start or in a new session. *)
Register(r, broker_epoch, newIntact) ==
  /\ broker_epoch > inc[r]
  /\ newIntact \in IF lost[r] THEN {broker_epoch} ELSE {broker_epoch, intact[r]}
  /\ inc' = [inc EXCEPT ![r] = broker_epoch]
  /\ intact' = [intact EXCEPT ![r] = newIntact]
  /\ up' = [up EXCEPT ![r] = TRUE]
  /\ lost' = [lost EXCEPT ![r] = FALSE]
  /\ departed' = IF IsFollower(r) THEN (<<r, inc[r], epoch[r]>> :> log[r]) @@ departed ELSE departed
  /\ UNCHANGED <<znode, states, known, written, noticed, log, hw, role, epoch, served, committed, forced>>
  /\ UNCHANGED leading

-----------------------------------------------------------------------------
Members == znode.isr \union znode.elr
Restarts == LET Sum[s \in SUBSET Replicas] ==
                  IF s = {} THEN 0 ELSE LET r == CHOOSE r \in s: TRUE IN inc[r] - 1 + Sum[s \ {r}]
            IN Sum[Replicas] + Cardinality({r \in Replicas: ~up[r]})
Losses == Cardinality({r \in Replicas: lost[r] \/ intact[r] > 1})

Next ==
  \/ \E r \in Replicas:
       \/ \E state \in states: Become(r, state) \/ UpdateView(r, state)
       \/ \E state \in {znode}: IsLeader(r) /\ state.epoch > epoch[r] /\ StopRole(r, state.epoch)
       \/ log[r].end < MaxEnd /\ LeaderAppend(r, 1)
       \/ IsFollower(r) /\ epoch[r] \in DOMAIN served
            /\ \E to \in log[r].end..Min(log[r].end + 1, served[epoch[r]].log.end):
                 \E high \in {hw[r], served[epoch[r]].hw}:
                   (to > log[r].end \/ Min(high, to) > hw[r]) /\ FollowerAppend(r, to, high)
       \/ FollowerTruncate(r)
       \/ \E f \in Replicas: \E i \in 1..inc[f], e \in (IF IgnoreLeaderEpoch THEN 1..epoch[r] ELSE {epoch[r]}):
            \E at \in 0..log[r].end: at > ends[r][f].end /\ RecordFetch(r, f, i, e, at)
       \/ IsLeader(r) /\ AdvanceHighWatermark(r, CommitPoint(r))
       \/ IsLeader(r) /\ \E f \in Replicas \ {r}:
            \/ f \in view[r].isr /\ ProposeIsr(r, view[r].isr \ {f})
            \/ f \notin view[r].isr /\ ProposeIsr(r, view[r].isr \union {f})
       \/ znode.version < MaxVersion /\ WriteIsr(r)
       \/ WithdrawIsr(r)
       \/ IsLeader(r) /\ MaxRestarts > 0 /\ StopRole(r, epoch[r])
       \/ Restarts < MaxRestarts /\ up[r] /\ ~IsLeader(r) /\ Register(r, inc[r] + 1, intact[r])
       \/ Notice(r)
       \/ Restarts < MaxRestarts /\ up[r]
            /\ \E to \in (IF Losses < MaxLosses THEN 0..log[r].end ELSE {log[r].end}):
                 Stop(r, Truncate(log[r], to), Min(hw[r], to))
       \/ ~up[r] /\ Register(r, inc[r] + 1, IF lost[r] THEN inc[r] + 1 ELSE intact[r])
  \/ /\ znode.epoch < MaxEpoch /\ znode.version < MaxVersion
     /\ \E unclean \in SUBSET {r \in Replicas: up[r] /\ inc[r] > known[r] /\ intact[r] > known[r]}:
          LET clean == WithoutUnclean(unclean) IN
          \E leader \in clean.isr \union clean.elr, isr \in SUBSET clean.isr \union {{r}: r \in clean.elr}:
            ControllerWrite(leader, isr, EligibleAfter(clean.isr, clean.elr, isr, unclean), znode.epoch + 1, unclean)
  \/ /\ znode.version < MaxVersion
     /\ \E r \in Replicas \ Members: up[r] /\ inc[r] > known[r] /\ intact[r] > known[r]
          /\ ControllerWrite(znode.leader, znode.isr, znode.elr, znode.epoch, {r})

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Invariants, as in RELIABILITY. *)

TypeOK ==
  /\ znode.isr \subseteq Replicas /\ znode.elr \subseteq Replicas /\ znode.isr /= {}
  /\ znode.isr \intersect znode.elr = {}
  /\ \A r \in Replicas: hw[r] <= log[r].end

LeaderIsInIsr == znode.leader \in znode.isr \union {NoLeader}

OneLeaderPerEpoch == \A a, b \in Replicas: IsLeader(a) /\ IsLeader(b) /\ epoch[a] = epoch[b] => a = b

(* Every replica that can be elected has every committed record. *)
StrongIsr == \A r \in Members: forced \/ lost[r] \/ intact[r] > known[r] \/ IsPrefix(committed, log[r])

(* The leader of the latest epoch has every committed record. *)
NoCommittedRecordIsLost ==
  \A r \in Replicas: forced \/ ~(IsLeader(r) /\ epoch[r] = znode.epoch /\ r = znode.leader)
                     \/ IsPrefix(committed, log[r])

(* Replicas agree below their high watermarks. *)
EqualBelowHighWatermark ==
  \A a, b \in Replicas: LET end == Min(hw[a], hw[b]) IN forced \/ Truncate(log[a], end) = Truncate(log[b], end)

(* With at most one loss of records, the controller never has to elect a replica that may have lost some. *)
NeverForced == MinInsync > 1 /\ MaxLosses <= 1 => ~forced

(* The high watermark of a leader does not decrease within its epoch; committed records do not change. *)
HighWatermarkNeverFalls ==
  [][\A r \in Replicas: IsLeader(r) /\ role'[r] = "leader" /\ epoch'[r] = epoch[r] => hw'[r] >= hw[r]]_vars
CommittedNeverChanges == [][forced \/ IsPrefix(committed, committed')]_vars
EpochsNeverFall == [][znode'.epoch >= znode.epoch /\ \A r \in Replicas: epoch'[r] >= epoch[r] \/ ~up'[r]]_vars

Symmetry == Permutations(Replicas)
=============================================================================
