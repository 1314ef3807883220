"""`amplifier-hooks chat`: a small chat orchestrator with real hooks; prompts come in, answers go out."""
