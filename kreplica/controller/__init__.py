"""The controller: the elected broker that manages partition leaders and replicas.

Data flows one way: ZooKeeper watch or broker response -> event -> handler -> decision -> ZooKeeper write -> context ->
commands to brokers.

* ``controller_election``: election of the controller; ``takeover``: the first step of a new controller; ``term``: state
  that exists only while this broker is the controller
* ``controller``: starts and ends terms, and passes events to their handlers
* ``event_types``, ``event_queue``: the events, handled one at a time; ``event_handlers``: the handler of each type
* ``state``: the controller's view of the cluster, and the state machines of partitions and replicas
* ``decisions``: pure functions for leader elections and state changes
* ``handlers``: one module for each kind of event; ``plans``: long reassignments in bounded steps
* ``effects``: ZooKeeper writes and commands to brokers
* ``history``: metrics, timeline, audit events and decision log for operators
* ``journal``: a recording of the controller's inputs and outputs on disk
"""
