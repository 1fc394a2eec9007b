"""Datasets: where rows come from, what each gives, who judges them, and where results go."""
