"""Plugins of a broker: found, made, asked, contained.

* ``discovery`` from a name to what makes it, or an error that lists what there is
* ``chosen`` all plugins of one broker, as its settings choose them
* ``containment`` one plugin's failures: logged, counted
* ``choices`` placement and elections: what is done where a plugin's answer is none
* ``running`` reporters and listeners: what starts and stops with the broker
* ``view`` the broker as plugins see it; ``led_partitions`` the partitions that it leads

That come along (``kreplica.plugins.built_in`` names them):

* ``patterns`` names with a star, in their settings
* ``agent_check`` a listener that tells load balancers whether the broker is ready
* ``log_reporter`` figures into the log; ``required_headers`` refuses records without them
"""

from kreplica.service.plugins.chosen import Plugins

__all__ = ["Plugins"]
