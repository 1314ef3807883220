"""A request comes in; the parts of a card that any screen can show go out."""
