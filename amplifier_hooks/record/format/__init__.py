"""One record comes in; its line of bytes goes out, redacted, chained and ready to be signed."""
