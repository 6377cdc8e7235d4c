"""Builds the optional C extension; all other metadata is in setup.cfg.

Without a C compiler or Python's header files, the installation continues, and kreplica uses its Python code.
``KREPLICA_KERNELS=no`` skips the extension and builds a wheel for all platforms.
"""

import os
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildKernels(build_ext):
    """Links without the library paths of this Python, which are meaningless on other machines."""

    def build_extension(self, extension):
        compiler = self.compiler
        compiler.linker_so = [word for word in compiler.linker_so if not word.startswith(("-L", "-Wl,-rpath"))]
        super().build_extension(extension)


KERNELS = Extension(
    "kreplica.wire._kernels",
    [f"native/{name}.c" for name in ("module", "crc32c", "batches", "requests", "rows", "records", "columns")],
    depends=["native/kernels.h", "native/fields.h"],
    py_limited_api=True,
    optional=True,
    # No debug information: it would contain the path of the build directory, and the wheel would not be reproducible.
    extra_compile_args=["-std=c11", "-O2", "-g0", "-fvisibility=hidden"],
    extra_link_args=["-s"],
)

HAS_STABLE_ABI = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")

if os.environ.get("KREPLICA_KERNELS") == "no" or not HAS_STABLE_ABI:
    setup()
else:
    setup(
        ext_modules=[KERNELS],
        cmdclass={"build_ext": BuildKernels},
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
    )
