"""`amplifier-hooks doctor`: the machine and the project come in; findings and their repairs go out."""
