"""Where plugins are found by ``twisted.plugin``: those that come along, and those of any other distribution.

Somebody else's is a file ``kreplica/plugins/NAME.py`` below any directory of the path that has no ``__init__.py``
beside it.  Modules here are imported to see what there is, so they import little: a ``kreplica.interfaces.Plugin``
names its factory as text.

* ``built_in`` the plugins that come along
"""

from twisted.plugin import pluginPackagePaths

__path__.extend(pluginPackagePaths(__name__))
__all__: list[str] = []
