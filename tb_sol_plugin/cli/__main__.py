"""`python -m tb_sol_plugin.cli`, the same as `tb-sol`."""

import sys

from tb_sol_plugin.cli import main

if __name__ == "__main__":
    sys.exit(main())
