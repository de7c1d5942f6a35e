# SPDX-License-Identifier: Apache-2.0
"""Refuses free-threaded Pythons with a sentence.

They do not even look for an extension of the stable ABI, so without this the import would fail with
"No module named 'tidl._core'". Sub-interpreters are refused by the extension itself.
"""

import sys
import sysconfig

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError(
        "tidl needs a Python with the GIL, and this one is the free-threaded build "
        f"{sys.version.split()[0]}: use the regular build",
        name="tidl",
    )
