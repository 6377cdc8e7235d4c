-------------------------------- MODULE Logs --------------------------------
(* Logs of replicas. A record is identified by its offset and by the epoch in which a leader appended it, so a log is
   the epoch of each of its records. It is run-length encoded, which is the content of a leader epoch file.

   end   log end offset
   runs  <<[epoch, start], ...>>, oldest first; each run has at least one record *)
EXTENDS Integers, Sequences

EmptyLog == [end |-> 0, runs |-> <<>>]

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b

LastEpoch(log) == IF log.runs = <<>> THEN -1 ELSE log.runs[Len(log.runs)].epoch

(* The log after a leader of `epoch` appended `count` records. *)
Append_(log, epoch, count) ==
  [end |-> log.end + count,
   runs |-> IF LastEpoch(log) = epoch \/ count = 0 THEN log.runs
            ELSE Append(log.runs, [epoch |-> epoch, start |-> log.end])]

Truncate(log, to) ==
  IF to >= log.end THEN log
  ELSE [end |-> to, runs |-> SelectSeq(log.runs, LAMBDA run: run.start < to)]

(* `log` with the records that `other` has from the end of `log` up to the offset `to`. *)
Copy(log, other, to) ==
  LET copied == SelectSeq(Truncate(other, to).runs,
                          LAMBDA run: \A next \in {n \in 1..Len(other.runs): other.runs[n].start > run.start}:
                                        other.runs[next].start > log.end)
      clipped == [n \in 1..Len(copied) |-> [copied[n] EXCEPT !.start = Max(@, log.end)]]
      same == clipped /= <<>> /\ clipped[1].epoch = LastEpoch(log)
  IN IF to <= log.end THEN log
     ELSE [end |-> to, runs |-> log.runs \o (IF same THEN Tail(clipped) ELSE clipped)]

IsPrefix(log, other) == log.end <= other.end /\ Truncate(other, log.end) = log

(* The largest epoch of `log` up to `epoch`, and its end (KIP-101, KIP-279). *)
EndOfEpoch(log, epoch) ==
  LET upTo == {n \in 1..Len(log.runs): log.runs[n].epoch <= epoch}
      count == IF upTo = {} THEN 0 ELSE CHOOSE n \in upTo: \A other \in upTo: other <= n
  IN [epoch |-> IF count = 0 THEN epoch ELSE log.runs[count].epoch,
      end |-> IF count = Len(log.runs) THEN log.end ELSE log.runs[count + 1].start]

(* A fetch from the end of `log` passes the check of a leader that has `leaderLog`. *)
Matches(log, leaderLog) ==
  \/ log.end = 0
  \/ LET found == EndOfEpoch(leaderLog, LastEpoch(log))
     IN found.epoch = LastEpoch(log) /\ found.end >= log.end

(* The new end of `log` if its fetch does not pass this check. *)
TruncationOffset(log, leaderLog) ==
  LET found == EndOfEpoch(leaderLog, LastEpoch(log))
      newer == {n \in 1..Len(log.runs): log.runs[n].epoch > found.epoch}
      ownEnd == IF newer = {} THEN log.end ELSE log.runs[CHOOSE n \in newer: \A other \in newer: n <= other].start
  IN Min(ownEnd, found.end)
=============================================================================
