------------------------------ MODULE Removal ------------------------------
(* Removal of the highest-numbered partitions of a topic, and the reuse of their numbers. *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Brokers,
  MaxNumber,             \* partitions have the numbers 0..MaxNumber
  MaxEpoch,
  RemoveAnyNumber,       \* broken: a requested partition is removed although higher numbers exist
  SkipReadOnly,          \* broken: a partition is removed without having been read-only
  ReuseBeforeDeleted,    \* broken: a number is reused before all files are deleted
  DeleteAnyEpoch         \* broken: a broker deletes a replica of a later partition with the same number

VARIABLES
  partitions,  \* numbers of the existing partitions
  epoch,       \* by number: the last leader epoch
  readOnly,    \* numbers of the read-only partitions
  requests,    \* numbers with a request znode
  removed,     \* by number: brokers that may still have files of a removed partition
  files,       \* by broker and number: leader epochs whose records the files contain; empty if there are none
  known,       \* by broker and number: leader epoch that the broker knows; 0 if it has no replica
  commands,    \* commands that may arrive at any time, repeatedly
  confirmed    \* broker and number of deletions that were confirmed to the controller

vars == <<partitions, epoch, readOnly, requests, removed, files, known, commands, confirmed>>

Numbers == 0..MaxNumber
Nowhere == [b \in Brokers |-> [n \in Numbers |-> {}]]

Init ==
  /\ partitions = {0, 1}
  /\ epoch = [n \in Numbers |-> IF n \in partitions THEN 1 ELSE 0]
  /\ readOnly = {} /\ requests = {} /\ commands = {} /\ confirmed = {}
  /\ removed = [n \in Numbers |-> {}]
  /\ files = Nowhere
  /\ known = [b \in Brokers |-> [n \in Numbers |-> IF n \in partitions THEN 1 ELSE 0]]

(* Requested partitions that can be removed: from the highest number down, and never all partitions. *)
Removable ==
  {n \in partitions \ {0}:
     /\ n \in requests
     /\ RemoveAnyNumber \/ \A higher \in partitions: higher > n => higher \in requests}

Request(n) ==
  /\ n \notin requests /\ requests' = requests \union {n}
  /\ UNCHANGED <<partitions, epoch, readOnly, removed, files, known, commands, confirmed>>

Cancel(n) ==
  /\ n \in requests /\ requests' = requests \ {n}
  /\ UNCHANGED <<partitions, epoch, readOnly, removed, files, known, commands, confirmed>>

Send(new) == commands' = commands \union new

Command(b, n, e, kind) == [to |-> b, number |-> n, epoch |-> e, kind |-> kind]

(* Step 1: one multi makes partitions read-only or writable again, each in a new leader epoch. *)
ChangeReadOnly ==
  /\ readOnly /= Removable /\ \A n \in partitions: epoch[n] < MaxEpoch
  /\ LET changed == (readOnly \ Removable) \union (Removable \ readOnly) IN
       /\ epoch' = [n \in Numbers |-> IF n \in changed THEN epoch[n] + 1 ELSE epoch[n]]
       /\ Send({Command(b, n, epoch'[n], "serve"): b \in Brokers, n \in changed})
  /\ readOnly' = Removable
  /\ UNCHANGED <<partitions, requests, removed, files, known, confirmed>>

(* Step 2: one multi removes the partition and its request, and records its replicas. *)
Remove(n) ==
  /\ n \in Removable
  /\ n \in readOnly \/ SkipReadOnly
  /\ RemoveAnyNumber \/ \A higher \in partitions: higher <= n
  /\ partitions' = partitions \ {n} /\ readOnly' = readOnly \ {n} /\ requests' = requests \ {n}
  /\ removed' = [removed EXCEPT ![n] = Brokers]
  /\ confirmed' = {each \in confirmed: each[2] /= n}
  /\ Send({Command(b, n, epoch[n], "delete"): b \in Brokers})
  /\ UNCHANGED <<epoch, files, known>>

(* Step 3: the controller receives the confirmation of a broker. *)
Free(b, n) ==
  /\ b \in removed[n] /\ <<b, n>> \in confirmed
  /\ removed' = [removed EXCEPT ![n] = @ \ {b}]
  /\ UNCHANGED <<partitions, epoch, readOnly, requests, files, known, commands, confirmed>>

(* CreatePartitions adds the next number, in the next leader epoch. *)
Add ==
  LET n == Cardinality(partitions) IN
  /\ n \in Numbers /\ n \notin partitions /\ epoch[n] < MaxEpoch
  /\ removed[n] = {} \/ ReuseBeforeDeleted
  /\ partitions' = partitions \union {n}
  /\ epoch' = [epoch EXCEPT ![n] = @ + 1]
  /\ Send({Command(b, n, epoch'[n], "serve"): b \in Brokers})
  /\ UNCHANGED <<readOnly, requests, removed, files, known, confirmed>>

(* Commands of one controller are numbered: one that precedes an obeyed command of the same partition is rejected. *)
Serve(command) ==
  LET b == command.to n == command.number IN
  /\ command.kind = "serve" /\ command.epoch > known[b][n]
  /\ \A other \in commands: other.kind = "delete" /\ other.number = n /\ other.to = b => other.epoch < command.epoch
                            \/ <<b, n>> \notin confirmed
  /\ known' = [known EXCEPT ![b][n] = command.epoch]
  /\ UNCHANGED <<partitions, epoch, readOnly, requests, removed, files, commands, confirmed>>

Delete(command) ==
  LET b == command.to n == command.number IN
  /\ command.kind = "delete" /\ (command.epoch >= known[b][n] \/ DeleteAnyEpoch)
  /\ known' = [known EXCEPT ![b][n] = 0]
  /\ files' = [files EXCEPT ![b][n] = {}]
  /\ confirmed' = confirmed \union {<<b, n>>}
  /\ UNCHANGED <<partitions, epoch, readOnly, requests, removed, commands>>

(* A broker appends records to a replica in the leader epoch that it knows. *)
Write(b, n) ==
  /\ known[b][n] > 0 /\ known[b][n] \notin files[b][n]
  /\ files' = [files EXCEPT ![b][n] = @ \union {known[b][n]}]
  /\ UNCHANGED <<partitions, epoch, readOnly, requests, removed, known, commands, confirmed>>

Next ==
  \/ ChangeReadOnly \/ Add
  \/ \E n \in Numbers: Request(n) \/ Cancel(n) \/ Remove(n) \/ \E b \in Brokers: Free(b, n) \/ Write(b, n)
  \/ \E command \in commands: Serve(command) \/ Delete(command)

Spec == Init /\ [][Next]_vars

(* Numbers are contiguous, and a topic has at least one partition. *)
Contiguous == partitions = 0..Cardinality(partitions) - 1 /\ partitions /= {}
RemovedOnlyAfterReadOnly == [][partitions \ partitions' \subseteq readOnly]_vars
EpochsNeverFall == [][\A n \in Numbers: epoch'[n] >= epoch[n]]_vars

(* The epochs in which this partition, and not a removed one with its number, existed. *)
Removals(n) == {command.epoch: command \in {c \in commands: c.kind = "delete" /\ c.number = n}}
IsOwn(n, e) == \A last \in Removals(n): e > last

(* No file of an existing partition contains records of a removed one. *)
NoOldRecords == \A b \in Brokers, n \in partitions: \A e \in files[b][n]: IsOwn(n, e)
(* No command deletes the files of an existing partition. *)
NothingElseIsDeleted ==
  [][\A b \in Brokers, n \in partitions: files[b][n] /= {} /\ files'[b][n] = {} => n \notin partitions']_vars

Symmetry == Permutations(Brokers)
=============================================================================
