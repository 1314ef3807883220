"""`python -m amplifier_hooks` is the `amplifier-hooks` command."""

from amplifier_hooks.cli.app import main

if __name__ == "__main__":
    main()
