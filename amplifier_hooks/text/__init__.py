"""Text that others wrote comes in; escaped, matched, masked or parsed text goes out."""
