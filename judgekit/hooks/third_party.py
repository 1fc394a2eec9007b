"""Makes installed packages importable in a process that was started without `site`.

The hook's usual answer needs none. A changed configuration (pydantic, YAML) and a judge (litellm) do.
"""

from __future__ import annotations

import os
import sys

from judgekit.hooks import launch

_NEEDED = "pydantic"  # stands for all that judgekit depends on


def make_importable() -> None:
    """Add the folders of installed packages to the path, as the interpreter does at its usual start.

    Before them comes the folder that holds this package, where its dependencies lie there too (`pip install
    --target`); after them the user's own packages, which `-I` leaves out, where they are needed.
    """
    if not sys.flags.no_site:
        return
    import site  # noqa: PLC0415 - a fifth of the cost of starting Python; see the module's docstring
    from importlib.util import find_spec  # noqa: PLC0415 - the same

    standard = len(sys.path)
    site.main()
    if launch.ROOT not in sys.path and os.path.isdir(os.path.join(launch.ROOT, _NEEDED)):
        site.addsitedir(launch.ROOT)
        sys.path.remove(launch.ROOT)
        sys.path.insert(standard, launch.ROOT)
    if find_spec(_NEEDED) is None:
        site.addsitedir(site.getusersitepackages())
