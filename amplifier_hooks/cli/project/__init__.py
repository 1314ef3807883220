"""`amplifier-hooks init`, `validate`, `list` and `test`: hook files of a project come in; findings go out."""
