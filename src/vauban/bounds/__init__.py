"""Statistics: bounds on class probabilities, computed from vote counts, that hold with confidence 1 - alpha."""
