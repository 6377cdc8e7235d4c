"""The controller: one broker of the cluster, elected, decides who leads which partition.

Data flows one way: watch or answer -> event -> context -> decision -> ZooKeeper -> context -> brokers.

* ``events``, ``event_queue`` what may happen; one event at a time
* ``controller`` election, and where events go; ``office`` what exists only while elected; ``failover`` taking office
* ``context`` what is known; ``states`` states and transitions of partitions and replicas
* ``elections``, ``decisions`` pure: who leads, what changes
* ``topics``, ``brokers``, ``shutdown``, ``leader_balance``, ``isr_changes`` the handlers of events; ``log_dir_events``,
  ``failed_replicas`` log directories that fail; ``refusals`` commands that brokers refuse
* ``reassignment_plan`` pure: how one partition's replicas move; ``reassignment``, ``reassignment_requests`` those steps
  taken, by RPC and by znode
* ``partition_counts`` more partitions or fewer by znodes: ``partition_addition``, ``partition_removal``,
  ``partition_requests``
* ``plans`` longer work, step by step: ``plan_run`` a plan and what has become of its steps, ``plan_steps`` pure: where
  each is; ``plan_reading`` from ZooKeeper, ``plan_choice`` whose turn it is, ``plan_acts`` what is done,
  ``plan_throttle`` how fast it may be copied
* ``topic_changes`` topics' znodes changed with all that belongs to a change
* ``topic_deletion``, ``replica_deletion``, ``departures`` replicas that go, and what follows when they are gone
* ``figures`` what each event cost; ``timeline`` when it was noticed, written, and acted upon by every broker
* ``memory`` what a broker remembers of its terms, for people: ``decided`` each partition's last decisions with their
  cause, ``chronicle`` what happened in the cluster; ``causes`` events in words
* ``state_writes`` the only place that writes ZooKeeper
* ``broker_requests`` (who is told what), ``command_bodies`` (the bytes), ``channels``: the only ones that tell brokers
* ``surroundings`` all that it learns from and acts upon; ``diary`` what it tells besides; ``command_answers``
* ``journaled`` a controller with a journal on disk: start here.  ``journal`` what is noted, ``journal_seams`` where;
  ``journal_values``, ``journal_context``, ``journal_plans``, ``journal_lines``, ``journal_head`` as what;
  ``journal_files`` the files, ``journal_rests`` where they begin
"""
