"""`amplifier-hooks audit`: a record comes in; a verdict, its lines or a page go out."""
