"""`amplifier-hooks demo`: a scripted agent meets three hooks; the story and its record go out."""
