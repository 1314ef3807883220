"""`amplifier-hooks approvals`: the requests of a store come in; lists, decisions and grants go out."""
