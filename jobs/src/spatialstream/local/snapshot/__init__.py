"""The objects of a slot and snapshot queries over them: segments, searches in segments, and views."""
