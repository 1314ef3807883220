"""`amplifier-hooks serve`: questions of other programs come in; answers of hooks and people go out."""
