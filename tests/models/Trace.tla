------------------------------- MODULE Trace -------------------------------
(* Recorded runs of brokers, checked to be behaviours of V3. TraceData contains the traces that storm_traces.py has
   recorded. TLC prints each step; it does not reach the end of a run that is not a behaviour. *)
EXTENDS V3, TraceData

VARIABLES run, at

Recorded == Traces[run]

(* Values at the start of the recording. *)
TraceInit ==
  /\ run \in DOMAIN Traces /\ at = 1
  /\ znode = Recorded.state /\ states = {Recorded.state}
  /\ inc = Recorded.inc /\ known = Recorded.inc /\ intact = Recorded.inc
  /\ written = 0 /\ noticed = [r \in Replicas |-> 0]
  /\ up = [r \in Replicas |-> TRUE]
  /\ lost = [r \in Replicas |-> FALSE]
  /\ log = Recorded.log /\ hw = Recorded.hw /\ role = Recorded.role /\ epoch = Recorded.epoch
  /\ view = Recorded.view /\ ends = Recorded.ends /\ start = Recorded.start
  /\ proposed = [r \in Replicas |-> IF Recorded.proposed[r].epoch = 0
                                    THEN [Recorded.proposed[r] EXCEPT !.epoch = Recorded.epoch[r]] ELSE NoWrite]
  /\ LET leaders == {r \in Replicas: Recorded.role[r] = "leader"} IN
       /\ served = [e \in {Recorded.epoch[r]: r \in leaders} |->
                      LET r == CHOOSE r \in leaders: Recorded.epoch[r] = e IN [log |-> log[r], hw |-> hw[r]]]
       /\ \/ leaders = {} /\ committed = EmptyLog
          \/ \E r \in leaders: committed = Truncate(log[r], hw[r])
  /\ departed = <<>>
  /\ forced = FALSE

(* Steps that V3 omits from Next. *)

(* A follower truncates its log to an offset that is not before the longest common prefix, in several steps. *)
TruncateInSteps(r, to) ==
  /\ IsFollower(r) /\ epoch[r] \in DOMAIN served
  /\ ~Matches(log[r], served[epoch[r]].log)
  /\ TruncationOffset(log[r], served[epoch[r]].log) <= to /\ to < log[r].end
  /\ log' = [log EXCEPT ![r] = Truncate(@, to)]
  /\ hw' = [hw EXCEPT ![r] = Min(@, to)]
  /\ UNCHANGED <<znode, states, role, epoch, served, departed, committed, forced>> /\ UNCHANGED cluster
  /\ UNCHANGED leading

(* A replica that cannot be elected is deleted, after a reassignment. *)
Discard(r, newLog, newHw) ==
  /\ role[r] = None /\ r \notin Members
  /\ IsPrefix(newLog, log[r]) /\ newHw <= Min(hw[r], newLog.end)
  /\ log' = [log EXCEPT ![r] = newLog]
  /\ hw' = [hw EXCEPT ![r] = newHw]
  /\ UNCHANGED <<znode, states, role, epoch, served, departed, committed, forced>> /\ UNCHANGED cluster
  /\ UNCHANGED leading

(* The controller handles the registration of a broker that cannot be elected, without a write. *)
NoticeOther(r) ==
  /\ up[r] /\ inc[r] > known[r] /\ r \notin Members
  /\ known' = [known EXCEPT ![r] = inc[r]]
  /\ noticed' = [noticed EXCEPT ![r] = written]
  /\ UNCHANGED <<znode, states, inc, written, intact, up, lost, log, hw, role, epoch, served, departed, committed,
                 forced>>
  /\ UNCHANGED leading

Final(r, finalLog, finalHw) == log[r] = finalLog /\ hw[r] = finalHw /\ UNCHANGED vars

Do(e) ==
  LET r == e[2] IN
  CASE e[1] = "become" -> \E s \in states: s.version = e[3] /\ Become(r, s) /\ role'[r] = e[4]
    [] e[1] = "update" -> \E s \in states: s.version = e[3] /\ UpdateView(r, s)
    [] e[1] = "withdraw" -> WithdrawIsr(r)
    [] e[1] = "stop" -> StopRole(r, e[3])
    [] e[1] = "append" -> LeaderAppend(r, e[3]) /\ log'[r].end = e[4]
    [] e[1] = "copy" -> /\ epoch[r] \in DOMAIN served
                        /\ FollowerAppend(r, e[3], Min(e[4], served[epoch[r]].hw)) /\ hw'[r] = e[4]
    [] e[1] = "truncate" -> TruncateInSteps(r, e[3]) /\ hw'[r] = e[4]
    [] e[1] = "fetch" -> RecordFetch(r, e[3], e[4], epoch[r], e[5])
    [] e[1] = "advance" -> AdvanceHighWatermark(r, e[3])
    [] e[1] = "propose" -> ProposeIsr(r, e[3]) /\ proposed'[r].elr = e[4] /\ proposed'[r].version = e[5]
    [] e[1] = "write" -> WriteIsr(r) /\ znode'.isr = e[3] /\ znode'.elr = e[4] /\ znode'.version = e[5]
    [] e[1] = "control" -> ControllerWrite(r, e[3], e[4], e[5], e[6]) /\ znode'.version = e[7]
    [] e[1] = "end" -> Stop(r, e[3], e[4])
    [] e[1] = "discard" -> Discard(r, e[3], e[4])
    [] e[1] = "register" -> Register(r, e[3], e[4])
    [] e[1] = "notice" -> Notice(r) \/ (intact[r] > known[r] /\ NoticeOther(r))
    [] e[1] = "final" -> Final(r, e[3], e[4])

TraceNext ==
  \/ /\ at <= Len(Recorded.events)
     /\ Do(Recorded.events[at])
     /\ at' = at + 1 /\ UNCHANGED run
     /\ PrintT(<<"step", run, at>>)
  \/ at > Len(Recorded.events) /\ UNCHANGED <<vars, run, at>>

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, run, at>>
=============================================================================
