"""`amplifier-hooks import`, `install` and `uninstall`: settings of other agent programs come in and go out."""
