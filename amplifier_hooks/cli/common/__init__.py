"""Standard streams, consent, messages and options that several commands share."""
