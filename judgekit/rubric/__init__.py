"""Tools for making rubrics: begin, check, try on their cases, and compare them."""
