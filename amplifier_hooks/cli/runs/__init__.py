"""`amplifier-hooks runs`: runs are queued, listed, stopped and carried out."""
