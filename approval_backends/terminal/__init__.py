"""A request comes in; a card on the terminal shows it, and the person's decision goes out."""
