"""`python -m tb_sol_plugin.cli`, the same as `tb-sol`."""

from tb_sol_plugin.cli import run

if __name__ == "__main__":
    run()
