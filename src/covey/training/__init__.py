"""Where a model is trained: networks, objective, metrics, a model as a row of numbers."""
