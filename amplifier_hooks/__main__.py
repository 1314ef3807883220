"""`python -m amplifier_hooks` is the `amplifier-hooks` command."""

import os
import sys

if __name__ == "__main__":
    if sys.path[0] in ("", os.getcwd()):  # noqa: PTH109  # `-m` puts the working folder there, which may be a stranger's
        del sys.path[0]
    from amplifier_hooks.cli.app import main

    main()
