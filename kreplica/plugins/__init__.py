"""Package in which ``twisted.plugin`` finds plugins: the built-in ones and those of other distributions.

Another distribution installs ``kreplica/plugins/NAME.py``, without an ``__init__.py``, in any directory on
``sys.path``. Finding plugins imports all these modules, so they should import little; a ``kreplica.interfaces.Plugin``
therefore names its factory as text.

* ``built_in``: the built-in plugins
"""

from twisted.plugin import pluginPackagePaths

__path__.extend(pluginPackagePaths(__name__))
__all__: list[str] = []
