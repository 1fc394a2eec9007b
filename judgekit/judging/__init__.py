"""The judge: tiers of models under a rubric, thresholds applied by code."""
