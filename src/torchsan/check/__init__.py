"""The static engine: hazards from source alone. Needs the standard library only, no torch."""
