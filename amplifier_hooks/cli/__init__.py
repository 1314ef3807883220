"""The `amplifier-hooks` command: arguments come in; answers go to standard output, messages to standard error."""
