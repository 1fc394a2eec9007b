"""Datasets: reads rows and their fields, runs their judging, and writes results."""
