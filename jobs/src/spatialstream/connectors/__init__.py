"""What touches the world: where records come from, where state is kept, and where rows go."""
