"""A small model on this machine: fetched as data, served by llama.cpp."""
