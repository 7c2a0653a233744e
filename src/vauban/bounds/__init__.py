"""Statistics: from counts of votes to bounds on probabilities that hold with confidence 1 - alpha."""
