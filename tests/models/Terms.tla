------------------------------- MODULE Terms -------------------------------
(* Terms of the controller: the election with its new controller epoch, writes that check /controller_epoch, and brokers
   that reject commands of earlier controllers. The state is one number that each write increases. *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Brokers,
  Nobody,
  MaxEpoch, MaxWrites, MaxCommands,
  SeparateElection,     \* broken: /controller and /controller_epoch are written one after the other
  UncheckedWrites,      \* broken: writes do not check /controller_epoch
  ReadBeforeElection,   \* broken: a controller reads the state before its epoch is written
  ObeyEveryController,  \* broken: brokers obey any controller epoch
  ObeyInAnyOrder        \* broken: brokers obey commands of one controller in any order

VARIABLES
  owner,     \* data of the ephemeral znode /controller
  epoch,     \* data of /controller_epoch, which is also its version
  state,     \* the last write: its number and the controller epoch of its writer
  term,      \* by broker: its own term, even if another controller has been elected since
  commands,  \* all commands ever sent; each may arrive at any time, repeatedly
  obeyed     \* by broker: the last command that it obeyed

vars == <<owner, epoch, state, term, commands, obeyed>>

NoTerm == [phase |-> "none", epoch |-> 0, value |-> 0, sent |-> 0]

Init ==
  /\ owner = Nobody
  /\ epoch = 0
  /\ state = [value |-> 0, epoch |-> 0]
  /\ term = [b \in Brokers |-> NoTerm]
  /\ commands = {}
  /\ obeyed = [b \in Brokers |-> [epoch |-> 0, number |-> 0, value |-> 0]]

(* One multi creates /controller and increments /controller_epoch. *)
Elect(b) ==
  /\ ~SeparateElection /\ ~ReadBeforeElection
  /\ owner = Nobody /\ term[b].phase = "none" /\ epoch < MaxEpoch
  /\ owner' = b /\ epoch' = epoch + 1
  /\ term' = [term EXCEPT ![b] = [NoTerm EXCEPT !.phase = "elected", !.epoch = epoch + 1]]
  /\ UNCHANGED <<state, commands, obeyed>>

(* The broken election in two steps; the second one relies on values that the first one has read. *)
CreateController(b) ==
  /\ SeparateElection \/ ReadBeforeElection
  /\ owner = Nobody /\ term[b].phase = "none" /\ epoch < MaxEpoch
  /\ owner' = b
  /\ term' = [term EXCEPT ![b] = [NoTerm EXCEPT !.phase = "created", !.epoch = epoch + 1, !.value = state.value]]
  /\ UNCHANGED <<epoch, state, commands, obeyed>>

WriteEpoch(b) ==
  /\ term[b].phase = "created"
  /\ SeparateElection \/ term[b].epoch = epoch + 1
  /\ epoch' = term[b].epoch
  /\ term' = [term EXCEPT ![b].phase = IF ReadBeforeElection THEN "active" ELSE "elected"]
  /\ UNCHANGED <<owner, state, commands, obeyed>>

(* The new controller reads the state. *)
TakeOver(b) ==
  /\ term[b].phase = "elected"
  /\ term' = [term EXCEPT ![b].phase = "active", ![b].value = state.value]
  /\ UNCHANGED <<owner, epoch, state, commands, obeyed>>

Write(b) ==
  /\ term[b].phase = "active" /\ state.value < MaxWrites
  /\ UncheckedWrites \/ epoch = term[b].epoch
  /\ state' = [value |-> state.value + 1, epoch |-> term[b].epoch]
  /\ term' = [term EXCEPT ![b].value = state'.value]
  /\ UNCHANGED <<owner, epoch, commands, obeyed>>

(* A controller sends its view of the state, even if it was replaced and does not know it. *)
Send(b, to) ==
  /\ term[b].phase = "active" /\ term[b].sent < MaxCommands
  /\ term' = [term EXCEPT ![b].sent = @ + 1]
  /\ commands' = commands \union
       {[to |-> to, epoch |-> term[b].epoch, number |-> term[b].sent + 1, value |-> term[b].value]}
  /\ UNCHANGED <<owner, epoch, state, obeyed>>

Obey(command) ==
  LET last == obeyed[command.to] IN
  /\ ObeyEveryController \/ command.epoch >= last.epoch
  /\ ObeyInAnyOrder \/ command.epoch /= last.epoch \/ command.number >= last.number
  /\ obeyed' = [obeyed EXCEPT ![command.to] =
                  [epoch |-> command.epoch, number |-> command.number, value |-> command.value]]
  /\ UNCHANGED <<owner, epoch, state, term, commands>>

(* The session of the controller ends; the controller does not know it yet. *)
LoseSession ==
  /\ owner /= Nobody
  /\ owner' = Nobody
  /\ UNCHANGED <<epoch, state, term, commands, obeyed>>

Resign(b) ==
  /\ term[b].phase /= "none" /\ owner /= b
  /\ term' = [term EXCEPT ![b] = NoTerm]
  /\ UNCHANGED <<owner, epoch, state, commands, obeyed>>

Next ==
  \/ LoseSession
  \/ \E command \in commands: Obey(command)
  \/ \E b \in Brokers:
       \/ Elect(b) \/ CreateController(b) \/ WriteEpoch(b) \/ TakeOver(b) \/ Write(b) \/ Resign(b)
       \/ \E to \in Brokers: Send(b, to)

Spec == Init /\ [][Next]_vars

OneControllerPerEpoch ==
  \A a, b \in Brokers:
    a /= b /\ {term[a].phase, term[b].phase} \subseteq {"elected", "active"} => term[a].epoch /= term[b].epoch
(* The state has not changed since the controller of the latest epoch read it, except by this controller. *)
OnlyTheLatestWrites ==
  \A b \in Brokers: term[b].phase = "active" /\ term[b].epoch = epoch => term[b].value = state.value

EpochNeverFalls == [][epoch' >= epoch]_vars
WriterNeverFalls == [][state'.epoch >= state.epoch]_vars
(* A broker may fall back only with the first command of a later controller: an earlier one that reads the state after
   it was replaced, and does not know that yet, can send a write of its successor before the successor does. *)
ObeyedNeverFalls ==
  [][\A b \in Brokers: obeyed'[b].value >= obeyed[b].value \/ obeyed'[b].epoch > obeyed[b].epoch]_vars

Symmetry == Permutations(Brokers)
=============================================================================
