"""What an answer does to the world: one file for each kind of effect."""
