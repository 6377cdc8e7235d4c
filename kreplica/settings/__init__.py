"""Every broker and topic setting as data, and what a file, the command line and ZooKeeper say of them.  Holds no state.

* ``setting`` one setting: name, type, default, range, run-time change
* ``validators`` what values may be
* ``definitions/`` all settings, by subject
* ``properties`` Java's ``.properties`` format
* ``broker_settings`` a broker's static settings: a file and overrides, checked
* ``listeners`` the values that describe listeners
* ``dynamic`` static and dynamic layers to effective values, and the rows of DescribeConfigs
* ``alterations`` what AlterConfigs and IncrementalAlterConfigs may do
* ``reference`` the page ``docs/settings.md``: ``python -m kreplica.settings > docs/settings.md``
"""
