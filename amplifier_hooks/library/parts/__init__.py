"""Parts that several ready-made hooks share: settings come in, points to register go out."""
