"""Everything outside the pipeline: where records come from, where state is kept, and where rows go."""
