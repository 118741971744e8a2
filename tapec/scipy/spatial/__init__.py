"""``scipy.spatial`` for traced values: ``distance``."""
