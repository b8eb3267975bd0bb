"""Domain values as text that people and programs read."""
