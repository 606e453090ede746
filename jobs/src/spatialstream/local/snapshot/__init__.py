"""Objects of a slot and what is asked of them once: segments, searches in them, views of them."""
