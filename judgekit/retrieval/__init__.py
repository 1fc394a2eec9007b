"""Finds candidates in stores of memories and folders of documents."""
