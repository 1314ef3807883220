"""Headers and bytes of a connection come in; admitted, bounded connections go out."""
